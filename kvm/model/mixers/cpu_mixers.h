#ifndef KVM_MODEL_MIXERS_CPU_MIXERS_H_
#define KVM_MODEL_MIXERS_CPU_MIXERS_H_

// How the CPU computes each kind of mixer. Other devices have lists of their own.

#include <memory>
#include <utility>
#include <vector>

#include "kvm/model/mixers/mixer.h"
#include "kvm/model/stack/mixer_kind.h"
#include "kvm/model/stack/model_options.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/layer_weights.h"

namespace kvm {

struct CpuMixerKind {
  const MixerKind* kind = nullptr;
  // The mixer of one layer: `spec` is one of the valid `stack`'s and of this kind, `weights` has its parameters.
  std::unique_ptr<Mixer> (*make)(const MixerSpec& spec, const StackSpec& stack, const LayerWeights& weights,
                                 const ModelOptions& options) = nullptr;
};

// A list of them: a value.
//
//   const CpuMixers mixers = BuiltinCpuMixers().With({&EmaKind(), NewEmaMixer});
//   ModelOptions options;
//   options.kinds = &kinds;        // BuiltinMixerKinds().With(EmaKind())
//   options.cpu_mixers = &mixers;
class CpuMixers {
 public:
  explicit CpuMixers(std::vector<CpuMixerKind> kinds) : kinds_(std::move(kinds)) {}

  // These and one more.
  CpuMixers With(const CpuMixerKind& kind) const;

  // Null for a mixer of none of these kinds.
  const CpuMixerKind* Find(const MixerSpec& mixer) const;

 private:
  std::vector<CpuMixerKind> kinds_;
};

// Those of BuiltinMixerKinds().
const CpuMixers& BuiltinCpuMixers();

}  // namespace kvm

#endif  // KVM_MODEL_MIXERS_CPU_MIXERS_H_
