#ifndef KVM_MODEL_MIXERS_ATTENTION_MIXER_H_
#define KVM_MODEL_MIXERS_ATTENTION_MIXER_H_

// Causal softmax attention, over everything or over a sliding window (mixers "gptalpha" and "swa" of published
// configs).

#include <memory>

#include "kvm/kernels/dtype.h"
#include "kvm/model/mixers/mixer.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/layer_weights.h"

namespace kvm {

// `spec` is valid and `weights` has its parameters; `state` is the cache's dtype.
std::unique_ptr<Mixer> NewAttentionMixer(const AttentionSpec& spec, int64_t width, StackSpec::TableType rotary_table,
                                         const LayerWeights& weights, DType state);

}  // namespace kvm

#endif  // KVM_MODEL_MIXERS_ATTENTION_MIXER_H_
