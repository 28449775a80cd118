#ifndef KVM_KERNELS_CPU_POINTWISE_ROTARY_H_
#define KVM_KERNELS_CPU_POINTWISE_ROTARY_H_

// Rotary position embedding over adjacent channel pairs, with frequencies spaced from 1 to 1/theta inclusive.

#include <cstdint>
#include <vector>

#include "kvm/kernels/dtype.h"
#include "kvm/kernels/matrix_view.h"

namespace kvm {

// freq_p = (1/theta)^e_p for the n = rotary_dim/2 pairs, in float32 to the bit: step = 1/(n−1),
// e_p = step·p for p < floor(n/2), else 1 − step·(n−1−p), 1/theta rounded to float32; n = 1 gives {1}.
// rotary_dim is even and >= 0 (0 gives no frequencies: NoPE), theta > 0.
std::vector<float> RotaryFrequencies(int64_t rotary_dim, double theta);

// Cosines and sines of position·freq (a float32 product) for positions first_position + 0..rows−1.
// cos, sin: [rows, freqs.size()]. `table` is kF32 or kBF16: values are rounded to it, as the model was trained.
void RotaryTable(absl::Span<const float> freqs, int64_t first_position, DType table, MatrixView<float> cos,
                 MatrixView<float> sin);

// Turns the first 2·cos.cols channels of every head in place:
// x[2p], x[2p+1] ← cos·x[2p] + sin·x[2p+1], cos·x[2p+1] − sin·x[2p].  x: [rows, heads·head_dim].
void ApplyRotary(MatrixView<float> x, int64_t head_dim, MatrixView<const float> cos, MatrixView<const float> sin);

}  // namespace kvm

#endif  // KVM_KERNELS_CPU_POINTWISE_ROTARY_H_
