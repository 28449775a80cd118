#ifndef KVM_KERNELS_REFERENCE_NORMS_H_
#define KVM_KERNELS_REFERENCE_NORMS_H_

#include <cstddef>
#include <vector>

namespace kvm {
namespace reference {

// (x − mean)/sqrt(var + epsilon) within each run of n consecutive elements of x, biased variance, then ⊙ weight + bias,
// which repeat from their start as often as needed: weight.size() is n or a multiple of n.
std::vector<double> Normalize(const std::vector<float>& x, size_t n, const std::vector<float>& weight,
                              const std::vector<float>& bias, double epsilon);

// x / max(‖x‖₂, floor) within each run of n consecutive elements of x.
std::vector<double> UnitLength(const std::vector<float>& x, size_t n, double floor);

}  // namespace reference
}  // namespace kvm

#endif  // KVM_KERNELS_REFERENCE_NORMS_H_
