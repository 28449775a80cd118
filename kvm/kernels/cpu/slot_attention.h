#ifndef KVM_KERNELS_CPU_SLOT_ATTENTION_H_
#define KVM_KERNELS_CPU_SLOT_ATTENTION_H_

// Softmax attention of queries over KVM state rows and a window of recent keys, in one softmax (KVM paper, readout).
// With window segments alone it is causal or sliding-window attention.

#include <cstdint>
#include <limits>

#include "absl/types/span.h"
#include "kvm/kernels/key_value.h"
#include "kvm/kernels/matrix_view.h"
#include "kvm/kernels/thread_pool.h"

namespace kvm {

inline constexpr int64_t kUnlimitedSpan = std::numeric_limits<int64_t>::max();

// The queries of one sequence and query head.
struct AttentionHead {
  MatrixView<const float> queries;  // [n, qk_dim]; query r stands at position first_position + r
  // [n, qk_dim]: what state segments are asked with instead; no rows: the same queries.
  MatrixView<const float> state_queries;
  MatrixView<float> out;  // [n, v_dim]; must not overlap anything read
  absl::Span<const KeyValueSegment> segments;
  int64_t first_position = 0;
  int64_t span = kUnlimitedSpan;  // positions that a query sees in the window, its own included
  float state_scale = 1;          // multiplies q·k for state rows: temperature / sqrt(qk_dim)
  float window_scale = 1;         // likewise for window keys
};

// out = softmax over all keys the query sees of scale·(q·k) + the key's bias, times their values. It is zero for a
// query that sees no key. A score of −inf has no weight. NaN in anything that a query reads makes its output NaN, and
// so do a score of +inf and scores that all are −inf.
//
// Scores are float32 sums over channels in ascending order; keys are visited in tiles counted from each segment's
// start, segments in the given order, and the running softmax is rescaled between tiles. So a query's bits depend on
// its segments alone: not on other queries, the thread count, or keys it does not see. Segments that begin at
// positions which do not depend on how the text was cut (chunk starts) keep results independent of the cut.
//
// State and window may each have their own queries. This is what two softmaxes give that are put together by their
// log-sum-exp: with L = log Σ exp(score) and o = Σ exp(score − L)·value of each part, their mean weighted by exp(L) is
//   (e^L₁·o₁ + e^L₂·o₂) / (e^L₁ + e^L₂) = Σ exp(score)·value / Σ exp(score) over the keys of both.
//
// kI8 segments: integers are widened in registers, and a key's scale multiplies its score, a value's its weight.
void SlotAttention(absl::Span<const AttentionHead> heads, ThreadPool& pool);

}  // namespace kvm

#endif  // KVM_KERNELS_CPU_SLOT_ATTENTION_H_
