#ifndef KVM_MODEL_STACK_BUILTIN_KINDS_H_
#define KVM_MODEL_STACK_BUILTIN_KINDS_H_

#include "kvm/model/stack/mixer_kind.h"

namespace kvm {

// The kinds of mixer that MixerSpec has fields for.
const MixerKinds& BuiltinMixerKinds();

}  // namespace kvm

#endif  // KVM_MODEL_STACK_BUILTIN_KINDS_H_
