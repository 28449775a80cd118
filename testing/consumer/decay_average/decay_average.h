#ifndef DECAY_AVERAGE_DECAY_AVERAGE_H_
#define DECAY_AVERAGE_DECAY_AVERAGE_H_

// decay_average, the example of docs/adding_a_mixer.md: exponential moving averages of the values.
//
//   v_t = value·x_t              C channels
//   s_t = s_{t−1} + σ(−decay) ⊙ (v_t − s_{t−1}),  s before token 0 is 0
//   out_t = output·s_t
//
// Tensors: value.weight [C, D], decay [C], output.weight [D, C]. A channel forgets with a factor σ(decay) a token.

#include <cstdint>
#include <memory>

#include "decay_average/decay_average.pb.h"
#include "kvm/model/mixers/mixer.h"
#include "kvm/model/stack/mixer_kind.h"
#include "kvm/model/stack/model_options.h"
#include "kvm/model/weights/layer_weights.h"

namespace consumer {

// C, with the default filled in.
int64_t DecayAverageChannels(const DecayAverageSpec& spec, int64_t width);

// What a stack has to know of this kind of mixer.
const kvm::MixerKind& DecayAverageKind();

// How the CPU computes it: CpuMixerKind::make.
std::unique_ptr<kvm::Mixer> NewDecayAverageMixer(const kvm::MixerSpec& spec, const kvm::StackSpec& stack,
                                                 const kvm::LayerWeights& weights, const kvm::ModelOptions& options);

}  // namespace consumer

#endif  // DECAY_AVERAGE_DECAY_AVERAGE_H_
