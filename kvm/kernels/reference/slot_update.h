#ifndef KVM_KERNELS_REFERENCE_SLOT_UPDATE_H_
#define KVM_KERNELS_REFERENCE_SLOT_UPDATE_H_

#include <cstdint>
#include <limits>
#include <vector>

namespace kvm {
namespace reference {

using Vector = std::vector<double>;

// State rows of one head.
struct SlotState {
  std::vector<Vector> key_sums;
  std::vector<Vector> value_sums;
  Vector radii;
};

struct SlotToken {
  Vector key;  // memory key, ungated
  Vector value;
  double key_gate = 1;
  double value_gate = 1;
};

struct SlotRules {
  Vector norm_weight;
  Vector norm_bias;
  int64_t num_sinks = 0;
  bool gate_appends = false;
  bool use_radius = true;
  double append_below = std::numeric_limits<double>::infinity();
  double second_merge = 0;
  double merge_decay = 1;
};

struct SlotRoutes {
  std::vector<int64_t> row_of_token;
  std::vector<int64_t> second_row;  // -1: none
  std::vector<bool> appended;
  // The smallest difference between a score that decided something and the best that did not equal it: routes computed
  // in float32 must be the same when this is far above float32's rounding.
  double smallest_gap = 0;
};

Vector MemoryKey(Vector key, int64_t zeroed, const Vector& norm_weight, const Vector& norm_bias);

// Every token becomes a row.
void SeedRows(const std::vector<SlotToken>& tokens, bool gated, const SlotRules& rules, SlotState& state);

// The least redundant `num_appends` tokens, as far as their redundancy is below append_below, are to become rows, the
// others to be added to the most similar row and to the next.
SlotRoutes RouteTokens(const std::vector<SlotToken>& tokens, int64_t num_appends, const SlotRules& rules,
                       const SlotState& state);

// Takes tokens into the rows that routes name, second_merge times into second rows; old rows added to decay first.
void ApplyRoutes(const std::vector<SlotToken>& tokens, const SlotRoutes& routes, const SlotRules& rules,
                 SlotState& state);

// What queries read of a row.
Vector ReadoutKey(const SlotState& state, int64_t row, const SlotRules& rules);
Vector ReadoutValue(const SlotState& state, int64_t row, const SlotRules& rules);

}  // namespace reference
}  // namespace kvm

#endif  // KVM_KERNELS_REFERENCE_SLOT_UPDATE_H_
