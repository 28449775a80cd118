#ifndef KVM_STATE_SLOT_BUDGET_H_
#define KVM_STATE_SLOT_BUDGET_H_

// How many state rows a KVM layer keeps at a given context length (KVM paper, state budgets).

#include <cstdint>
#include <limits>

namespace kvm {

struct SlotBudget {
  enum class Growth {
    kFixed,       // min_rows
    kPowerLaw,    // floor(factor · context^exponent)
    kSaturation,  // floor(limit · context / (limit + context))
  };
  Growth growth = Growth::kFixed;
  double factor = 1;
  double exponent = 0.5;
  double limit = 0;
  int64_t round_down = 1;  // the growing modes are rounded down to a multiple of this
  int64_t min_rows = -1;   // at least this many; −1: no minimum
  int64_t max_chunks = 1;  // never more than this many chunks' worth of rows
  // Below +inf the budget adapts to what is read: TargetRows is a bound, within which an overflow token becomes a row
  // only while its redundancy is below this (SlotUpdateOptions::append_below).
  double append_below = std::numeric_limits<double>::infinity();
};

// The number of rows wanted when an overflow chunk enters the state.
//   context_length: tokens before the one that causes the update; > 0
//   available: tokens in the state once the chunk is in it
//   chunk_len: C; present_rows: rows now
// Returns min(budget, available, C·max_chunks), but never fewer than present_rows: rows are never given up.
int64_t TargetRows(const SlotBudget& budget, int64_t context_length, int64_t available, int64_t chunk_len,
                   int64_t present_rows);

}  // namespace kvm

#endif  // KVM_STATE_SLOT_BUDGET_H_
