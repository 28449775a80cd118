#ifndef KVM_MODEL_MIXERS_DELTA_NET_MIXER_H_
#define KVM_MODEL_MIXERS_DELTA_NET_MIXER_H_

// Gated DeltaNet (arXiv 2412.06464) and Kimi Delta Attention (arXiv 2510.26692), as mixers. They differ in their gates:
// how the state decays and what the output is multiplied by.

#include <memory>

#include "kvm/model/mixers/mixer.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/layer_weights.h"

namespace kvm {

// `spec` is valid and `weights` has its parameters. States are DeltaNetStates. There are no value residuals; as the
// anchor of other mixers serves v_proj, without convolution. `chunked`: see ModelOptions::chunked_recurrences.
std::unique_ptr<Mixer> NewGatedDeltaNetMixer(const GatedDeltaNetSpec& spec, int64_t width, const LayerWeights& weights,
                                             bool chunked = false);
std::unique_ptr<Mixer> NewKimiDeltaMixer(const KimiDeltaSpec& spec, int64_t width, const LayerWeights& weights,
                                         bool chunked = false);

}  // namespace kvm

#endif  // KVM_MODEL_MIXERS_DELTA_NET_MIXER_H_
