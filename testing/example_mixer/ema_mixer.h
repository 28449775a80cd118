#ifndef TESTING_EXAMPLE_MIXER_EMA_MIXER_H_
#define TESTING_EXAMPLE_MIXER_EMA_MIXER_H_

// decay_average, the example of docs/adding_a_mixer.md: exponential moving averages of the values.
//
//   v_t = value·x_t              C channels
//   s_t = s_{t−1} + σ(−decay) ⊙ (v_t − s_{t−1}),  s before token 0 is 0
//   out_t = output·s_t
//
// Tensors: value.weight [C, D], decay [C], output.weight [D, C]. A channel forgets with a factor σ(decay) a token.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kvm/io/json/json_fields.h"
#include "kvm/model/engine/state_size.h"
#include "kvm/model/mixers/mixer.h"
#include "kvm/model/stack/stack_problems.h"
#include "kvm/model/weights/layer_weights.h"
#include "kvm/model/weights/parameters.h"
#include "testing/example_mixer/decay_average.pb.h"

namespace kvm {

// C, with the default filled in.
int64_t DecayAverageChannels(const DecayAverageSpec& spec, int64_t width);

// What cannot be in a spec at `path` ("mixers[0].decay_average"). Everything below takes valid specs.
std::vector<StackProblem> FindDecayAverageProblems(const DecayAverageSpec& spec, const std::string& path);

// `prefix` is "transformer.h.I.attn.".
void AppendDecayAverageParameters(const DecayAverageSpec& spec, const LayerPlace& place, const std::string& prefix,
                                  std::vector<Parameter>* parameters);

// The same at every context; the state is always float32.
StateSize DecayAverageStateSize(const DecayAverageSpec& spec, int64_t width);

// config.json's decay_average_channels (null: the width) and decay_average_longest_memory. Fields of a wrong type are
// problems of `fields`.
DecayAverageSpec ReadDecayAverage(JsonFields* fields);

// `spec` is valid and `weights` has its parameters.
std::unique_ptr<Mixer> NewDecayAverageMixer(const DecayAverageSpec& spec, int64_t width, const LayerWeights& weights);

}  // namespace kvm

#endif  // TESTING_EXAMPLE_MIXER_EMA_MIXER_H_
