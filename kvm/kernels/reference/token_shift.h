#ifndef KVM_KERNELS_REFERENCE_TOKEN_SHIFT_H_
#define KVM_KERNELS_REFERENCE_TOKEN_SHIFT_H_

#include <vector>

namespace kvm {
namespace reference {

// x_t + mix ⊙ (x_{t−1} − x_t) with x_{−1} = previous.  previous, mix: [d]; x and the result: [n, d].
std::vector<double> TokenShift(const std::vector<float>& x, const std::vector<float>& previous,
                               const std::vector<float>& mix);

}  // namespace reference
}  // namespace kvm

#endif  // KVM_KERNELS_REFERENCE_TOKEN_SHIFT_H_
