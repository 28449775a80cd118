#ifndef KVM_MODEL_STACK_STACK_SPEC_H_
#define KVM_MODEL_STACK_STACK_SPEC_H_

// Reading, checking and resolving StackSpec (stack.proto).

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/state/slot_budget.h"

namespace kvm {

// Parses the text format. InvalidArgument with `source`, line and column for text that is no StackSpec, and whatever
// ValidateStack returns.
absl::StatusOr<StackSpec> ParseStackSpec(absl::string_view text, const std::string& source);

// The text format of a spec.
std::string FormatStackSpec(const StackSpec& spec);

// InvalidArgument that lists every bad field by its path ("mixers[1].kvm.chunk_len"), its value and the allowed range.
// Everything below takes valid specs.
absl::Status ValidateStack(const StackSpec& spec);

// The index in spec.mixers of layer i's mixer; −1 when no mixer has that name.
int MixerIndex(const StackSpec& spec, int layer);

// The layer whose value projection gives layer i its value anchor; −1 when its mixer has no value residual.
int AnchorLayer(const StackSpec& spec, int layer);

// Whether a mixer mixes its values with a value anchor.
bool HasValueResidual(const MixerSpec& mixer);

int64_t MlpWidth(const StackSpec& spec);

// Whether a mixer is attention-style: any kind but rwkv7, gated_delta_net and kimi_delta.
bool HasProjections(const MixerSpec& mixer);

// The projections of an attention-style mixer.
const ProjectionSpec& Projections(const MixerSpec& mixer);
ProjectionSpec* MutableProjections(MixerSpec* mixer);

// The sizes of an attention-style mixer with all defaults filled in.
struct HeadSizes {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t qk_dim = 0;
  int64_t v_dim = 0;
};
HeadSizes ResolveHeads(const ProjectionSpec& spec, int64_t width);

// Channels of a mixer's values, all key/value heads together.
int64_t ValueWidth(const MixerSpec& mixer, int64_t width);

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

}  // namespace kvm

#endif  // KVM_MODEL_STACK_STACK_SPEC_H_
