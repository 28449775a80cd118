#ifndef KVM_KERNELS_CPU_SLOT_UPDATE_H_
#define KVM_KERNELS_CPU_SLOT_UPDATE_H_

// How tokens enter KVM state rows: as rows of their own, or added to the most similar row (KVM paper, state update).
//
// An update has two halves. RouteTokens decides where every token goes and changes nothing; ApplyRoutes takes the
// tokens into the rows, by these routes or by others:
//
//   const std::pmr::vector<SlotRoutes> routes = RouteTokens(heads, pool.memory(), pool);
//   ApplyRoutes(absl::MakeSpan(heads), routes, pool);

#include <cstdint>
#include <limits>
#include <memory_resource>
#include <vector>

#include "absl/types/span.h"
#include "kvm/kernels/matrix_view.h"
#include "kvm/kernels/slot_rows.h"
#include "kvm/kernels/thread_pool.h"

namespace kvm {

// The layer norm ln_s_k over qk_dim channels, epsilon 1e-5. It makes memory keys of keys, and is applied to the key sum
// of a row when that is read.
struct MemoryKeyNorm {
  absl::Span<const float> weight;  // [qk_dim]
  absl::Span<const float> bias;    // [qk_dim]
};

// k̄ = LN(k with its first `zeroed` channels set to 0).  keys, out: [n, qk_dim]; `out` may be `keys` itself, otherwise
// no overlap.
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

// Readout rows are written as SlotRows::readout_dtype. With kI8 a row x becomes the scale s = max|x|/127 and the
// integers x/s, rounded to nearest, ties to even: no element is off by more than s/2. A row in which a number is not
// finite gets the scale NaN.

// Makes every token of a sequence's first chunk a row, in order, behind the present rows. The sums are gated when
// `gated`. The radius is the norm of the ungated value (kRadius) or 1 (kMean). rows.count grows by n, for which there
// must be capacity. `memory` holds what the call works with.
void SeedRows(const SlotTokens& tokens, bool gated, const MemoryKeyNorm& norm, ValueReadout readout, SlotRows& rows,
              std::pmr::memory_resource* memory = std::pmr::get_default_resource());

struct SlotUpdateOptions {
  int64_t num_sinks = 0;      // rows 0..num_sinks−1 take no token
  int64_t num_appends = 0;    // tokens that become rows; <= n
  bool gate_appends = false;  // gates also multiply the key and value of a token that becomes a row
  ValueReadout readout = ValueReadout::kRadius;

  // Beyond the paper; the defaults change no bit.
  float append_below = std::numeric_limits<float>::infinity();  // RouteTokens, step 1
  float second_merge = 0;                                       // RouteTokens, step 2
  float merge_decay = 1;                                        // ApplyRoutes
};

// The update of one head: an overflow chunk of n tokens and the rows that it comes to.
struct SlotUpdateHead {
  SlotTokens tokens;
  SlotUpdateOptions options;
  MemoryKeyNorm norm;
  SlotRows rows;  // up to date readout; count + num_appends <= capacity
};

// Where the n tokens of one head go.
struct SlotRoutes {
  SlotRoutes(int64_t n, std::pmr::memory_resource* memory)
      : row_of_token(n, 0, memory), second_row(n, -1, memory), appended(n, false, memory) {}

  std::pmr::vector<int64_t> row_of_token;  // the row that a token becomes, or the best of those it can be added to
  std::pmr::vector<int64_t> second_row;    // the second best; −1: none, and for tokens that become rows
  std::pmr::vector<bool> appended;         // whether the token becomes a row
};

// The routes of all heads.
//  1. A token's redundancy is the largest k̄·LN(key sum) over all rows, sinks included. The num_appends least redundant
//     tokens become rows, in token order, behind the present ones; of equals the earlier does. With append_below < +inf
//     only those of them whose redundancy is below it do: −inf appends none, +inf all.
//  2. Every other token goes to the row >= num_sinks with the largest k̄·LN(key sum), rows of step 1 included; of
//     equals to the lowest. With second_merge != 0 it goes to the second best row of these, too, if there is one.
// Scores are float32 dot products with the float32 sums as they are before this update, whatever readout_dtype is.
// A score that is NaN counts as −inf: a token whose scores all are is least redundant, and goes to row num_sinks.
// If a token does not become a row there must be a row >= num_sinks for it. Routes do not depend on the thread count,
// nor those of a head on other heads. `memory` holds the result.
std::pmr::vector<SlotRoutes> RouteTokens(absl::Span<const SlotUpdateHead> heads, std::pmr::memory_resource* memory,
                                         ThreadPool& pool);

// Takes the tokens of all heads into their rows.
//  1. Tokens that become rows do so in token order; radius = norm of the value as appended (kRadius) or 1 (kMean).
//  2. Every other token, in token order, adds its gated key and value to its row, and second_merge times the same to
//     its second row. A row that is older than this update and takes a token is multiplied by merge_decay first, once:
//     key and value sum. Radii stay.
//  3. With kMean the radius of every row grows by 1. The readout of rows that changed is written anew.
// routes[i] are those of heads[i], appended tokens in rows count, count + 1, ...; rows.count grows by their number.
// No two heads share rows.
void ApplyRoutes(absl::Span<SlotUpdateHead> heads, absl::Span<const SlotRoutes> routes, ThreadPool& pool);

// Writes the readout of all rows anew, from their sums and radii. Where it is up to date this changes no bit.
void RefreshReadout(const MemoryKeyNorm& norm, ValueReadout readout, SlotRows& rows,
                    std::pmr::memory_resource* memory = std::pmr::get_default_resource());

}  // namespace kvm

#endif  // KVM_KERNELS_CPU_SLOT_UPDATE_H_
