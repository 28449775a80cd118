#ifndef KVM_MODEL_MIXERS_BLOCK_WINDOW_MIXER_H_
#define KVM_MODEL_MIXERS_BLOCK_WINDOW_MIXER_H_

// Causal softmax attention over the last chunks and the first tokens (mixer "gptalpha_bswa" of published configs).

#include <memory>

#include "kvm/kernels/dtype.h"
#include "kvm/model/mixers/mixer.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/layer_weights.h"

namespace kvm {

// `spec` is valid and `weights` has its parameters; `state` is the dtype of window and sinks.
std::unique_ptr<Mixer> NewBlockWindowMixer(const BlockWindowSpec& spec, int64_t width,
                                           StackSpec::TableType rotary_table, const LayerWeights& weights, DType state);

}  // namespace kvm

#endif  // KVM_MODEL_MIXERS_BLOCK_WINDOW_MIXER_H_
