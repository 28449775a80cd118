#ifndef KVM_KERNELS_CPU_SLOT_UPDATE_H_
#define KVM_KERNELS_CPU_SLOT_UPDATE_H_

// How tokens enter KVM state rows: as rows of their own, or added to the most similar row (KVM paper, state update).

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kvm/kernels/matrix_view.h"
#include "kvm/kernels/slot_rows.h"

namespace kvm {

// The layer norm ln_s_k over qk_dim channels, epsilon 1e-5: applied to keys when they become memory keys, and again
// to a row's key sum when it is read.
struct MemoryKeyNorm {
  absl::Span<const float> weight;  // [qk_dim]
  absl::Span<const float> bias;    // [qk_dim]
};

// k̄ = LN(k with its first `zeroed` channels set to 0).  keys, out: [n, qk_dim]; out may be keys.
void MemoryKeys(MatrixView<const float> keys, int64_t zeroed, const MemoryKeyNorm& norm, MatrixView<float> out);

// Tokens on their way into the state.
struct SlotTokens {
  MatrixView<const float> keys;         // memory keys k̄ [n, qk_dim], ungated
  MatrixView<const float> values;       // [n, v_dim], ungated
  absl::Span<const float> key_gates;    // [n], or empty for 1
  absl::Span<const float> value_gates;  // [n], or empty for 1
};

// How a row's value is read.
enum class ValueReadout {
  kRadius,  // value sum scaled to length radius: sum / max(‖sum‖, 1e-12) · radius
  kMean,    // value sum / radius, where radius counts (kvm_use_vlens = 0)
};

// Makes every token a row, in order, behind the present rows. Sums are gated when `gated`; the radius is the norm of
// the ungated value (kRadius) or 1 (kMean). rows.count grows by n; rows.count + n <= rows.capacity.
// These are the tokens of a sequence's first chunk.
void FoundRows(const SlotTokens& tokens, bool gated, const MemoryKeyNorm& norm, ValueReadout readout, SlotRows& rows);

struct SlotUpdateOptions {
  int64_t num_sinks = 0;      // rows 0..num_sinks−1 take no token
  int64_t num_appends = 0;    // tokens that become rows; <= n
  bool gate_appends = false;  // gates multiply the key and value of tokens that become rows, too
  ValueReadout readout = ValueReadout::kRadius;
};

// Takes one overflow chunk of n tokens into the state:
//  1. A token's redundancy is the largest k̄·LN(key sum) over all rows, sinks included. The num_appends least redundant
//     tokens (ties: the earlier token) become rows, in token order; radius = norm of the value as appended, or 1.
//  2. Every other token adds its gated key and value to the row >= num_sinks, new rows included, with the largest
//     k̄·LN(key sum) as it stands after step 1 (ties: the lowest row). Radii stay; with kMean every row's grows by 1.
// Readout rows of touched rows are refreshed. Scores are computed from the float32 sums, whatever readout_dtype is.
// If n > num_appends there must be at least one row that is no sink; rows.count + num_appends <= rows.capacity.
// Returns the row of every token, in token order (for tests and provenance).
std::vector<int64_t> UpdateRows(const SlotTokens& tokens, const SlotUpdateOptions& options, const MemoryKeyNorm& norm,
                                SlotRows& rows);

}  // namespace kvm

#endif  // KVM_KERNELS_CPU_SLOT_UPDATE_H_
