#include "kvm/model/stack/builtin_kinds.h"

#include "kvm/model/stack/kinds/kinds.h"

namespace kvm {

const MixerKinds& BuiltinMixerKinds() {
  // Never destroyed, as others may be used after main().
  static const MixerKinds& kinds = *new MixerKinds({&Rwkv7Kind(), &KvmKind(), &AttentionKind(), &BlockWindowKind(),
                                                    &OvqKind(), &GatedDeltaNetKind(), &KimiDeltaKind()});
  return kinds;
}

const MixerKinds& KindsOf(const ModelOptions& options) {
  return options.kinds == nullptr ? BuiltinMixerKinds() : *options.kinds;
}

}  // namespace kvm
