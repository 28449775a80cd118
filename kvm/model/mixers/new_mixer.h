#ifndef KVM_MODEL_MIXERS_NEW_MIXER_H_
#define KVM_MODEL_MIXERS_NEW_MIXER_H_

#include <memory>

#include "absl/status/status.h"
#include "kvm/model/mixers/mixer.h"
#include "kvm/model/stack/model_options.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/layer_weights.h"

namespace kvm {

// Unimplemented, naming the mixer, when the stack has one of a kind that options.cpu_mixers do not know.
absl::Status CheckMixers(const StackSpec& stack, const ModelOptions& options);

// The mixer of one layer, after that check: `spec` is one of the valid `stack`'s, `weights` has its parameters.
std::unique_ptr<Mixer> NewMixer(const MixerSpec& spec, const StackSpec& stack, const LayerWeights& weights,
                                const ModelOptions& options);

}  // namespace kvm

#endif  // KVM_MODEL_MIXERS_NEW_MIXER_H_
