#ifndef KVM_MODEL_STACK_CANONICAL_STACK_H_
#define KVM_MODEL_STACK_CANONICAL_STACK_H_

// One spec for all the specs that mean the same stack.

#include <cstdint>

#include "kvm/model/stack/builtin_kinds.h"
#include "kvm/model/stack/mixer_kind.h"
#include "kvm/model/stack/stack.pb.h"

namespace kvm {

// The mixer of a valid spec with the sizes that other fields imply said outright, and without the fields that say
// nothing: numbers that its budgets' growth does not use, and ranks of low-rank matrices, which its tensors say.
MixerSpec ResolvedMixer(const MixerSpec& mixer, int64_t width, const MixerKinds& kinds = BuiltinMixerKinds());

// Two valid specs that make the same stack of the same tensors have equal canonical specs, whatever they call their
// mixers, in whatever order they list them, and whether they say defaults or leave them out. Mixers are called by
// numbers from 0 up, in the order in which layers first use them; those that no layer uses are gone. What the tensors
// say anyway is left out: ranks and the expansion of the MLP; and so is the rounding of rotary tables where no mixer
// has any. A new field of StackSpec changes no canonical spec that leaves it at its default.
StackSpec CanonicalStack(const StackSpec& spec, const MixerKinds& kinds = BuiltinMixerKinds());

}  // namespace kvm

#endif  // KVM_MODEL_STACK_CANONICAL_STACK_H_
