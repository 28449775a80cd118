#ifndef KVM_KERNELS_REFERENCE_SHORT_CONVOLUTION_H_
#define KVM_KERNELS_REFERENCE_SHORT_CONVOLUTION_H_

#include <vector>

namespace kvm {
namespace reference {

// One channel: out[t] = silu(Σ_j taps[j]·u[t − (size−1) + j] + bias), where history [size−1] stands before u, latest
// last.
std::vector<double> ShortConvolution(const std::vector<double>& history, const std::vector<double>& u,
                                     const std::vector<double>& taps, double bias);

}  // namespace reference
}  // namespace kvm

#endif  // KVM_KERNELS_REFERENCE_SHORT_CONVOLUTION_H_
