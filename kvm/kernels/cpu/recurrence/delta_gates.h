#ifndef KVM_KERNELS_CPU_RECURRENCE_DELTA_GATES_H_
#define KVM_KERNELS_CPU_RECURRENCE_DELTA_GATES_H_

// What surrounds the delta rule of Gated DeltaNet (arXiv 2412.06464) and Kimi Delta Attention (arXiv 2510.26692). Each
// row's result depends on that row alone.

#include <cstdint>

#include "absl/types/span.h"
#include "kvm/kernels/matrix_view.h"

namespace kvm {

// x = scale·x/sqrt(Σx² + 1e-6) within each head of `head_dim` columns.
void DeltaUnitLength(MatrixView<float> x, int64_t head_dim, float scale);

// y = scale·σ(y): the write strength β (scale 2 allows negative eigenvalues).
void ScaledSigmoid(MatrixView<float> y, float scale);

// Decays in [0, 1] from projections y [n, d], in place; rate, bias: [d], rate >= 0 and possibly infinite. A log decay
// may be of any size: a decay that underflows is 0. NaN in an input is NaN in its column.
//
// y = exp(−rate ⊙ softplus(y + bias)).
void SoftplusDecay(MatrixView<float> y, absl::Span<const float> rate, absl::Span<const float> bias);
// y = exp(lower_bound·σ(rate ⊙ (y + bias))), lower_bound < 0.
void BoundedDecay(MatrixView<float> y, absl::Span<const float> rate, absl::Span<const float> bias, float lower_bound);

// x = x/sqrt(mean(x²) + epsilon) ⊙ weight ⊙ gate within each head of weight.size() columns, whose weights they share.
// gate: as x, or empty for none.
void GatedRmsNorm(MatrixView<float> x, absl::Span<const float> weight, float epsilon, MatrixView<const float> gate);

}  // namespace kvm

#endif  // KVM_KERNELS_CPU_RECURRENCE_DELTA_GATES_H_
