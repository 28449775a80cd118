#ifndef KVM_KERNELS_CPU_POINTWISE_ELEMENTWISE_H_
#define KVM_KERNELS_CPU_POINTWISE_ELEMENTWISE_H_

// Element by element operations on matrices, in place on their first argument. An element's result depends only on its
// own inputs, not on where in a row or vector it lies; NaN in any of them gives NaN. Shapes of matrix arguments are
// equal; spans have one entry a column.

#include "absl/types/span.h"
#include "kvm/kernels/matrix_view.h"

namespace kvm {

// y += scale·x.
void AddScaled(MatrixView<float> y, float scale, MatrixView<const float> x);

// y = a·y + b·x.
void Blend(MatrixView<float> y, float a, float b, MatrixView<const float> x);

// y = y ⊙ x.
void Multiply(MatrixView<float> y, MatrixView<const float> x);

// y = max(y, 0)², the MLP's activation.
void ReluSquared(MatrixView<float> y);

// y = tanh(y).
void Tanh(MatrixView<float> y);

// y = σ(y).
void Sigmoid(MatrixView<float> y);

// y = y·σ(y).
void Silu(MatrixView<float> y);

// y = σ(bias + y).
void BiasedSigmoid(MatrixView<float> y, absl::Span<const float> bias);

// y += (target − y) ⊙ σ(bias + gate): a value residual (mode "rwkv").
void SigmoidBlend(MatrixView<float> y, MatrixView<const float> target, absl::Span<const float> bias,
                  MatrixView<const float> gate);

// y = 1 + ELU(y) = y > 0 ? 1 + y : exp(y), KVM's merge gate.
void OnePlusElu(MatrixView<float> y);

// y = cap·tanh(y/cap); cap > 0.
void SoftCap(MatrixView<float> y, float cap);

// y = exp((y − largest)/temperature), the softmax's weights before they are divided by their sum: 1 where y = largest,
// which may be infinite. No y is above `largest`, which is no NaN; temperature is finite and >= 0.
void SoftmaxWeights(MatrixView<float> y, float largest, float temperature);

// y = exp(−exp(−softplus(−(bias + y)) − 0.5)), RWKV-7's decay; results lie in (exp(−exp(−0.5)), 1).
void Rwkv7Decay(MatrixView<float> y, absl::Span<const float> bias);

}  // namespace kvm

#endif  // KVM_KERNELS_CPU_POINTWISE_ELEMENTWISE_H_
