#ifndef KVM_MODEL_STACK_BUILTIN_KINDS_H_
#define KVM_MODEL_STACK_BUILTIN_KINDS_H_

#include "kvm/model/stack/mixer_kind.h"
#include "kvm/model/stack/model_options.h"

namespace kvm {

// The kinds of mixer that MixerSpec has fields for.
const MixerKinds& BuiltinMixerKinds();

// Those of a model's options, which are the builtin ones unless they say otherwise.
const MixerKinds& KindsOf(const ModelOptions& options);

}  // namespace kvm

#endif  // KVM_MODEL_STACK_BUILTIN_KINDS_H_
