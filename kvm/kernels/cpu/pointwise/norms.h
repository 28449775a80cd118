#ifndef KVM_KERNELS_CPU_POINTWISE_NORMS_H_
#define KVM_KERNELS_CPU_POINTWISE_NORMS_H_

// Normalizations of rows. Each row's result depends on that row alone. `out` may be `x` itself, otherwise no overlap.

#include <cstdint>

#include "absl/types/span.h"
#include "kvm/kernels/matrix_view.h"

namespace kvm {

inline constexpr float kLayerNormEpsilon = 1e-5f;

// out = (x − mean)/sqrt(var + epsilon) ⊙ weight + bias over all columns, biased variance.
// x, out: [n, d]; weight, bias: [d].
void LayerNorm(MatrixView<const float> x, absl::Span<const float> weight, absl::Span<const float> bias, float epsilon,
               MatrixView<float> out);

// The same within each head: x, out: [n, heads·d] with d = weight.size(); all heads share weight and bias [d].
void HeadLayerNorm(MatrixView<const float> x, absl::Span<const float> weight, absl::Span<const float> bias,
                   float epsilon, MatrixView<float> out);

// The same within each of `groups` equal runs of columns, with weight and bias per column [groups·d] (RWKV-7's ln_x).
void GroupNorm(MatrixView<const float> x, int64_t groups, absl::Span<const float> weight, absl::Span<const float> bias,
               float epsilon, MatrixView<float> out);

// out = x / max(‖x‖₂, floor) within each head of `head_dim` columns.
void HeadUnitLength(MatrixView<const float> x, int64_t head_dim, float floor, MatrixView<float> out);

// out = x / (‖x‖₂ + epsilon) within each head of `head_dim` columns: just short of unit length.
void HeadSoftUnitLength(MatrixView<const float> x, int64_t head_dim, float epsilon, MatrixView<float> out);

}  // namespace kvm

#endif  // KVM_KERNELS_CPU_POINTWISE_NORMS_H_
