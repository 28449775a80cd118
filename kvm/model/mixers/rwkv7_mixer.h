#ifndef KVM_MODEL_MIXERS_RWKV7_MIXER_H_
#define KVM_MODEL_MIXERS_RWKV7_MIXER_H_

// RWKV-7 time mixing ("Goose", arXiv 2503.14456), as a mixer.

#include <memory>

#include "kvm/model/mixers/mixer.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/layer_weights.h"

namespace kvm {

// `spec` is valid and `weights` has its parameters. The state is always float32. `chunked`: see
// ModelOptions::chunked_recurrences.
std::unique_ptr<Mixer> NewRwkv7Mixer(const Rwkv7Spec& spec, int64_t width, const LayerWeights& weights, bool chunked);

}  // namespace kvm

#endif  // KVM_MODEL_MIXERS_RWKV7_MIXER_H_
