#ifndef KVM_MODEL_MIXERS_OVQ_MIXER_H_
#define KVM_MODEL_MIXERS_OVQ_MIXER_H_

// Online vector quantization (mixer "ovq" of published configs): attention over a dictionary of centroids, which every
// complete chunk of tokens updates, and over the chunk being filled.

#include <memory>

#include "kvm/kernels/dtype.h"
#include "kvm/model/mixers/mixer.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/layer_weights.h"

namespace kvm {

// `spec` is valid and `weights` has its parameters; `state` is the dtype of the chunk being filled. The dictionary is
// float32 always.
std::unique_ptr<Mixer> NewOvqMixer(const OvqSpec& spec, int64_t width, const LayerWeights& weights, DType state);

}  // namespace kvm

#endif  // KVM_MODEL_MIXERS_OVQ_MIXER_H_
