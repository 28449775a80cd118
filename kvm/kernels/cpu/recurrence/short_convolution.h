#ifndef KVM_KERNELS_CPU_RECURRENCE_SHORT_CONVOLUTION_H_
#define KVM_KERNELS_CPU_RECURRENCE_SHORT_CONVOLUTION_H_

// The causal depthwise convolution over a few tokens that stands in front of the delta rules.

#include <cstdint>

#include "absl/types/span.h"
#include "kvm/kernels/matrix_view.h"

namespace kvm {

// Each channel's filter and bias.
struct ConvolutionTaps {
  MatrixView<const float> taps;  // [size, d]: row size−1 multiplies the token itself, row 0 the earliest
  absl::Span<const float> bias;  // [d], or empty
};

// For `count` rows of one sequence from row `begin` on:
//   out[t, c] = silu(bias[c] + Σ_{j<size} taps[j, c]·u[t − (size−1) + j, c])
// u: [n, d], all rows of the call, of which earlier ones are read; history: [size−1, d], the rows before row 0, latest
// last; out: [count, d], no overlap with what is read. Sums run in ascending j: a row's bits do not depend on the cut.
void ShortConvolution(MatrixView<const float> u, int64_t begin, int64_t count, MatrixView<const float> history,
                      const ConvolutionTaps& taps, MatrixView<float> out);

// Moves the rows of u past the history: [size−1, d] ends with the last rows of (history, u).
void AdvanceHistory(MatrixView<const float> u, MatrixView<float> history);

}  // namespace kvm

#endif  // KVM_KERNELS_CPU_RECURRENCE_SHORT_CONVOLUTION_H_
