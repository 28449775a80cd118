#ifndef KVM_MODEL_MIXERS_NEW_MIXER_H_
#define KVM_MODEL_MIXERS_NEW_MIXER_H_

#include <memory>

#include "kvm/model/mixers/mixer.h"
#include "kvm/model/stack/model_options.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/layer_weights.h"

namespace kvm {

// The mixer of one layer: `spec` is one of the valid `stack`'s, `weights` has its parameters.
std::unique_ptr<Mixer> NewMixer(const MixerSpec& spec, const StackSpec& stack, const LayerWeights& weights,
                                const ModelOptions& options);

}  // namespace kvm

#endif  // KVM_MODEL_MIXERS_NEW_MIXER_H_
