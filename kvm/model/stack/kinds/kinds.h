#ifndef KVM_MODEL_STACK_KINDS_KINDS_H_
#define KVM_MODEL_STACK_KINDS_KINDS_H_

// The records of the kinds that MixerSpec has fields for, one a file.

#include "kvm/model/stack/mixer_kind.h"

namespace kvm {

const MixerKind& AttentionKind();
const MixerKind& BlockWindowKind();
const MixerKind& GatedDeltaNetKind();
const MixerKind& KimiDeltaKind();
const MixerKind& KvmKind();
const MixerKind& OvqKind();
const MixerKind& Rwkv7Kind();

}  // namespace kvm

#endif  // KVM_MODEL_STACK_KINDS_KINDS_H_
