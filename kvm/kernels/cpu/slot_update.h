#ifndef KVM_KERNELS_CPU_SLOT_UPDATE_H_
#define KVM_KERNELS_CPU_SLOT_UPDATE_H_

// How tokens enter KVM state rows: as rows of their own, or added to the most similar row (KVM paper, state update).

#include <cstdint>
#include <limits>
#include <memory_resource>
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
// These are the tokens of a sequence's first chunk. `memory` is what the work is done in.
void FoundRows(const SlotTokens& tokens, bool gated, const MemoryKeyNorm& norm, ValueReadout readout, SlotRows& rows,
               std::pmr::memory_resource* memory = std::pmr::get_default_resource());

struct SlotUpdateOptions {
  int64_t num_sinks = 0;      // rows 0..num_sinks−1 take no token
  int64_t num_appends = 0;    // tokens that become rows; <= n
  bool gate_appends = false;  // gates multiply the key and value of tokens that become rows, too
  ValueReadout readout = ValueReadout::kRadius;

  // Beyond the paper; the defaults change no bit.
  float append_below = std::numeric_limits<float>::infinity();  // see step 1
  float second_merge = 0;                                       // see step 2
  float merge_decay = 1;                                        // see step 2
};

// Readout rows as integers (readout_dtype kI8): a row x has the scale s = max|x|/127 and the integers x/s rounded to
// nearest, ties to even. So every element is off by s/2 = max|x|/254 at most. A row with a number that is not finite
// has the scale NaN, and reads as NaN.

// Takes one overflow chunk of n tokens into the state:
//  1. A token's redundancy is the largest k̄·LN(key sum) over all rows, sinks included. The num_appends least redundant
//     tokens (ties: the earlier token) become rows, in token order; radius = norm of the value as appended, or 1.
//     With append_below < +inf only those of them whose redundancy is below it: −inf appends none, +inf all.
//  2. Every other token adds its gated key and value to the row >= num_sinks, new rows included, with the largest
//     k̄·LN(key sum) as it stands after step 1 (ties: the lowest row). Radii stay; with kMean every row's grows by 1.
//     second_merge times the same is added to the row with the second largest (ties: the lowest row left), if there is
//     one. Rows older than this update that are added to are multiplied by merge_decay first, once: key and value sum.
// Readout rows are up to date and stay so. Scores are those of the float32 sums, whatever readout_dtype is.
// If a token merges there must be at least one row that is no sink; rows.count + num_appends <= rows.capacity.
// Returns the row of every token, in token order: the best one of those that merge. `memory` is what the work is done
// in, the result too.
std::pmr::vector<int64_t> UpdateRows(const SlotTokens& tokens, const SlotUpdateOptions& options,
                                     const MemoryKeyNorm& norm, SlotRows& rows,
                                     std::pmr::memory_resource* memory = std::pmr::get_default_resource());

// Writes the readout of all rows anew, from the sums and radii that are there: what it is up to date, to the bit.
void RefreshReadout(const MemoryKeyNorm& norm, ValueReadout readout, SlotRows& rows,
                    std::pmr::memory_resource* memory = std::pmr::get_default_resource());

}  // namespace kvm

#endif  // KVM_KERNELS_CPU_SLOT_UPDATE_H_
