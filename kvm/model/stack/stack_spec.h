#ifndef KVM_MODEL_STACK_STACK_SPEC_H_
#define KVM_MODEL_STACK_STACK_SPEC_H_

// Reading and checking StackSpec (stack.proto). `kinds` are the kinds of mixer that a stack may have.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvm/model/stack/builtin_kinds.h"
#include "kvm/model/stack/mixer_kind.h"
#include "kvm/model/stack/mixer_sizes.h"
#include "kvm/model/stack/stack.pb.h"

namespace kvm {

// Parses the text format. InvalidArgument with `source`, line and column for text that is no StackSpec, and whatever
// ValidateStack returns.
absl::StatusOr<StackSpec> ParseStackSpec(absl::string_view text, const std::string& source,
                                         const MixerKinds& kinds = BuiltinMixerKinds());

// The text format of a spec.
std::string FormatStackSpec(const StackSpec& spec);

// InvalidArgument that lists every bad field by its path ("mixers[1].kvm.chunk_len"), its value and the allowed range.
// Everything below takes specs that are valid with the same kinds.
absl::Status ValidateStack(const StackSpec& spec, const MixerKinds& kinds = BuiltinMixerKinds());

// The index in spec.mixers of layer i's mixer; −1 when no mixer has that name.
int MixerIndex(const StackSpec& spec, int layer);

// The layer whose value projection gives layer i its value anchor; −1 when its mixer has no value residual.
int AnchorLayer(const StackSpec& spec, int layer, const MixerKinds& kinds = BuiltinMixerKinds());

// Whether a mixer mixes its values with a value anchor.
bool HasValueResidual(const MixerSpec& mixer, const MixerKinds& kinds = BuiltinMixerKinds());

int64_t MlpWidth(const StackSpec& spec);

// Whether a mixer is attention-style: its queries, keys and values are what a ProjectionSpec says.
bool HasProjections(const MixerSpec& mixer, const MixerKinds& kinds = BuiltinMixerKinds());

// The projections of an attention-style mixer.
const ProjectionSpec& Projections(const MixerSpec& mixer, const MixerKinds& kinds = BuiltinMixerKinds());

// Channels of a mixer's values, all key/value heads together.
int64_t ValueWidth(const MixerSpec& mixer, int64_t width, const MixerKinds& kinds = BuiltinMixerKinds());

}  // namespace kvm

#endif  // KVM_MODEL_STACK_STACK_SPEC_H_
