#ifndef KVM_MODEL_MIXERS_KVM_MIXER_H_
#define KVM_MODEL_MIXERS_KVM_MIXER_H_

// Key-Value Means: attention over a short window of recent chunks and over state rows that older chunks were merged
// into (Goldstein and Cheah, arXiv 2605.09877).
//
// When the first token of a new chunk arrives, the window gives up its oldest chunk and the state takes it in; then all
// queries of the new chunk read the same state. The first chunk's tokens become rows as they come.

#include <memory>

#include "kvm/kernels/dtype.h"
#include "kvm/model/mixers/mixer.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/layer_weights.h"

namespace kvm {

// `spec` is valid and `weights` has its parameters; `state` is the dtype of the readout rows and, unless it is kI8, of
// the window. With `provenance` states record the row of every token.
std::unique_ptr<Mixer> NewKvmMixer(const KvmSpec& spec, int64_t width, StackSpec::TableType rotary_table,
                                   const LayerWeights& weights, DType state, bool provenance);

}  // namespace kvm

#endif  // KVM_MODEL_MIXERS_KVM_MIXER_H_
