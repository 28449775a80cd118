#include "kvm/state/slot_budget.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kvm/base/check.h"

namespace kvm {
namespace {

// A number of rows that no state reaches, yet far from overflow.
constexpr int64_t kManyRows = int64_t{1} << 60;

// Rounds towards zero as Python's int() does, and to a multiple of `round_down`; NaN and negative numbers give 0.
int64_t WholeRows(double rows, int64_t round_down) {
  if (!(rows > 0)) return 0;
  const int64_t whole = rows < static_cast<double>(kManyRows) ? static_cast<int64_t>(rows) : kManyRows;
  return round_down > 1 ? whole - whole % round_down : whole;
}

int64_t Budget(const SlotBudget& budget, int64_t context_length) {
  const double context = static_cast<double>(context_length);
  switch (budget.growth) {
    case SlotBudget::Growth::kFixed:
      return budget.min_rows;
    case SlotBudget::Growth::kPowerLaw:
      return std::max(WholeRows(budget.factor * std::pow(context, budget.exponent), budget.round_down),
                      budget.min_rows);
    case SlotBudget::Growth::kSaturation:
      return std::max(WholeRows(budget.limit * context / (budget.limit + context), budget.round_down), budget.min_rows);
  }
  return budget.min_rows;
}

}  // namespace

int64_t TargetRows(const SlotBudget& budget, int64_t context_length, int64_t available, int64_t chunk_len,
                   int64_t present_rows) {
  CheckAtLeast(context_length, 0, "context_length");
  CheckAtLeast(available, 0, "available");
  CheckAtLeast(chunk_len, 0, "chunk_len");
  CheckAtLeast(present_rows, 0, "present_rows");
  const bool cap_fits = budget.max_chunks <= std::numeric_limits<int64_t>::max() / std::max<int64_t>(chunk_len, 1);
  const int64_t cap = cap_fits ? budget.max_chunks * chunk_len : std::numeric_limits<int64_t>::max();
  return std::max(std::min({Budget(budget, context_length), available, cap}), present_rows);
}

}  // namespace kvm
