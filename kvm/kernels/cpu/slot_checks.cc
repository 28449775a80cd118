#include "kvm/kernels/cpu/slot_checks.h"

#include <cstdint>

#include "kvm/base/check.h"
#include "kvm/kernels/check_view.h"

namespace kvm {
namespace {

int64_t Size(absl::Span<const float> span) { return static_cast<int64_t>(span.size()); }

}  // namespace

void CheckSlotRows(const SlotRows& rows, CallSite site) {
  CheckAtLeast(rows.qk_dim, 1, "rows.qk_dim", site);
  CheckAtLeast(rows.v_dim, 1, "rows.v_dim", site);
  CheckBetween(rows.count, 0, rows.capacity, "rows.count", site);
  const bool integers = rows.readout_dtype == DType::kI8;
  Check(integers || rows.readout_dtype == DType::kF32 || rows.readout_dtype == DType::kBF16,
        "rows.readout_dtype to be F32, BF16 or I8", site);
  if (rows.capacity == 0) return;
  Check(rows.key_sums != nullptr && rows.value_sums != nullptr && rows.radii != nullptr,
        "rows with memory for sums and radii", site);
  Check(rows.readout_keys != nullptr && rows.readout_values != nullptr, "rows with memory for their readout", site);
  Check(!integers || (rows.readout_key_scales != nullptr && rows.readout_value_scales != nullptr),
        "rows of integers with memory for scales", site);
}

void CheckMemoryKeyNorm(const MemoryKeyNorm& norm, int64_t qk_dim, CallSite site) {
  CheckEq(Size(norm.weight), qk_dim, "norm.weight.size()", site);
  CheckEq(Size(norm.bias), qk_dim, "norm.bias.size()", site);
}

void CheckSlotTokens(const SlotTokens& tokens, const MemoryKeyNorm& norm, const SlotRows& rows, CallSite site) {
  CheckSlotRows(rows, site);
  CheckMemoryKeyNorm(norm, rows.qk_dim, site);
  const int64_t n = tokens.keys.rows;
  CheckView(tokens.keys, n, rows.qk_dim, "tokens.keys", site);
  CheckView(tokens.values, n, rows.v_dim, "tokens.values", site);
  if (!tokens.key_gates.empty()) CheckEq(Size(tokens.key_gates), n, "tokens.key_gates.size()", site);
  if (!tokens.value_gates.empty()) CheckEq(Size(tokens.value_gates), n, "tokens.value_gates.size()", site);
}

}  // namespace kvm
