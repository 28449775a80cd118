#ifndef KVM_MODEL_STACK_MIXER_SIZES_H_
#define KVM_MODEL_STACK_MIXER_SIZES_H_

// The sizes that the fields of mixers come to, with all defaults filled in. Takes valid specs.

#include <cstdint>
#include <vector>

#include "kvm/kernels/ovq_schedule.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/state/slot_budget.h"

namespace kvm {

// Of an attention-style mixer; of others that have heads, num_kv_heads are those of the values.
struct HeadSizes {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t qk_dim = 0;
  int64_t v_dim = 0;
};
HeadSizes ResolveHeads(const ProjectionSpec& spec, int64_t width);

// max(32, 32·round(multiplier·width^power/32)): the rank of low-rank matrices in new models.
int64_t DefaultRank(double multiplier, double power, int64_t width);
int64_t ValueGateRank(const ProjectionSpec& spec, int64_t width);

struct Rwkv7Ranks {
  int64_t decay = 0;            // w1, w2
  int64_t in_context_rate = 0;  // a1, a2
  int64_t value = 0;            // v1, v2
  int64_t gate = 0;             // g1, g2
};
Rwkv7Ranks ResolveRanks(const Rwkv7Spec& spec, int64_t width);

SlotBudget ToSlotBudget(const BudgetSpec& spec);

// The budget of every key/value head.
std::vector<SlotBudget> ToHeadBudgets(const KvmSpec& spec);

// The rows that a growing budget has before its formula asks for as many, when that is so after the first update of the
// state; 0: the formula holds from there on.
int64_t LeastRows(const KvmSpec& kvm, const BudgetSpec& budget);

// How the dictionary of an OVQ layer grows.
OvqSchedule ToOvqSchedule(const OvqSpec& spec);

}  // namespace kvm

#endif  // KVM_MODEL_STACK_MIXER_SIZES_H_
