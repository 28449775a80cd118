#ifndef KVM_KERNELS_REFERENCE_MATMUL_H_
#define KVM_KERNELS_REFERENCE_MATMUL_H_

#include <cstdint>
#include <vector>

namespace kvm {
namespace reference {

// y[r, o] = Σ_i x[r, i]·weight[o, i].  x: [rows, inputs], weight: [outputs, inputs]; returns [rows, outputs].
std::vector<double> MatMul(const std::vector<float>& x, const std::vector<float>& weight, int64_t rows, int64_t inputs,
                           int64_t outputs);

}  // namespace reference
}  // namespace kvm

#endif  // KVM_KERNELS_REFERENCE_MATMUL_H_
