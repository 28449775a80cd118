#include "kvm/model/stack/mixer_sizes.h"

#include <algorithm>
#include <cmath>

namespace kvm {

HeadSizes ResolveHeads(const ProjectionSpec& spec, int64_t width) {
  HeadSizes sizes;
  sizes.num_heads = spec.num_heads();
  sizes.num_kv_heads = spec.has_num_kv_heads() ? spec.num_kv_heads() : spec.num_heads();
  sizes.qk_dim = spec.has_qk_head_dim() ? spec.qk_head_dim() : width / spec.num_heads();
  sizes.v_dim = spec.has_v_head_dim() ? spec.v_head_dim() : width / spec.num_heads();
  return sizes;
}

int64_t DefaultRank(double multiplier, double power, int64_t width) {
  // Ties go to the even multiple, as in Python's round().
  const double rank = std::nearbyint(multiplier * std::pow(static_cast<double>(width), power) / 32);
  return std::max<int64_t>(32, 32 * static_cast<int64_t>(rank));
}

int64_t ValueGateRank(const ProjectionSpec& spec, int64_t width) {
  return spec.has_value_gate_rank() ? spec.value_gate_rank() : DefaultRank(1.3, 0.5, width);
}

Rwkv7Ranks ResolveRanks(const Rwkv7Spec& spec, int64_t width) {
  Rwkv7Ranks ranks;
  ranks.decay = spec.has_decay_rank() ? spec.decay_rank() : DefaultRank(1.8, 0.5, width);
  ranks.in_context_rate = spec.has_in_context_rate_rank() ? spec.in_context_rate_rank() : DefaultRank(1.8, 0.5, width);
  ranks.value = spec.has_value_rank() ? spec.value_rank() : DefaultRank(1.3, 0.5, width);
  ranks.gate = spec.has_gate_rank() ? spec.gate_rank() : DefaultRank(0.6, 0.8, width);
  return ranks;
}

SlotBudget ToSlotBudget(const BudgetSpec& spec) {
  SlotBudget budget;
  switch (spec.growth()) {
    case BudgetSpec::FIXED:
      budget.growth = SlotBudget::Growth::kFixed;
      break;
    case BudgetSpec::POWER_LAW:
      budget.growth = SlotBudget::Growth::kPowerLaw;
      break;
    case BudgetSpec::SATURATION:
      budget.growth = SlotBudget::Growth::kSaturation;
      break;
  }
  budget.factor = spec.factor();
  budget.exponent = spec.exponent();
  budget.limit = spec.limit();
  budget.round_down = spec.round_down();
  budget.min_rows = spec.min_rows();
  budget.max_chunks = spec.max_chunks();
  budget.append_below = spec.append_below();
  return budget;
}

std::vector<SlotBudget> ToHeadBudgets(const KvmSpec& spec) {
  const ProjectionSpec& projections = spec.projections();
  const int32_t heads = projections.has_num_kv_heads() ? projections.num_kv_heads() : projections.num_heads();
  if (spec.head_budgets().empty()) return std::vector<SlotBudget>(heads, ToSlotBudget(spec.budget()));
  std::vector<SlotBudget> budgets;
  for (const BudgetSpec& budget : spec.head_budgets()) budgets.push_back(ToSlotBudget(budget));
  return budgets;
}

int64_t LeastRows(const KvmSpec& kvm, const BudgetSpec& budget) {
  if (budget.growth() != BudgetSpec::POWER_LAW) return 0;
  const double context = static_cast<double>(kvm.chunk_len()) * (kvm.window_chunks() + 1.0);
  const double rows = budget.factor() * std::pow(context, budget.exponent());
  return rows < budget.min_rows() ? budget.min_rows() : 0;
}

OvqSchedule ToOvqSchedule(const OvqSpec& spec) { return {spec.max_centroids(), spec.grow_linearly()}; }

}  // namespace kvm
