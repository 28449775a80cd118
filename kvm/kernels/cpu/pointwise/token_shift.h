#ifndef KVM_KERNELS_CPU_POINTWISE_TOKEN_SHIFT_H_
#define KVM_KERNELS_CPU_POINTWISE_TOKEN_SHIFT_H_

#include "absl/types/span.h"
#include "kvm/kernels/matrix_view.h"

namespace kvm {

// out_t = x_t + mix ⊙ (x_{t−1} − x_t), where x_{−1} = previous (RWKV's token shift).
// x, out: [n, d]; previous, mix: [d]. `out` may be `x` itself, otherwise no overlap; `previous` must not lie in `out`.
// For the "first" fallback at a sequence's start pass a copy of row 0 as `previous`, for "zero" pass zeros.
void TokenShift(MatrixView<const float> x, absl::Span<const float> previous, absl::Span<const float> mix,
                MatrixView<float> out);

}  // namespace kvm

#endif  // KVM_KERNELS_CPU_POINTWISE_TOKEN_SHIFT_H_
