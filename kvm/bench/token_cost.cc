#include "kvm/bench/token_cost.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/parameters.h"

namespace kvm {
namespace {

constexpr char kEmbedding[] = "transformer.wte.weight";
constexpr char kHead[] = "lm_head.weight";

void Add(const MixerCost& more, MixerCost* cost) {
  cost->flop += more.flop;
  cost->bytes += more.bytes;
}

}  // namespace

MixerCost CostOfMixer(const MixerSpec& mixer, int64_t width, DType dtype, int64_t position, const MixerKinds& kinds) {
  return kinds.Of(mixer).token_cost(mixer, width, dtype, position);
}

double LayerWeightFlop(const StackSpec& spec, const MixerKinds& kinds) {
  double flop = 0;
  for (const Parameter& parameter : StackParameters(spec, kinds)) {
    // RWKV-7's r_k is a vector in the shape of a matrix.
    if (parameter.shape.size() != 2 || absl::EndsWith(parameter.name, ".r_k")) continue;
    if (parameter.name == kEmbedding || parameter.name == kHead) continue;
    flop += 2 * static_cast<double>(NumElements(parameter.shape));
  }
  return flop;
}

double HeadFlop(const StackSpec& spec) { return 2.0 * spec.vocab_size() * spec.width(); }

MixerCost CostOfMixers(const StackSpec& spec, DType dtype, int64_t position, const MixerKinds& kinds) {
  std::vector<MixerCost> of_mixer;
  for (const MixerSpec& mixer : spec.mixers()) {
    of_mixer.push_back(CostOfMixer(mixer, spec.width(), dtype, position, kinds));
  }
  MixerCost total;
  for (int layer = 0; layer < spec.layers_size(); ++layer) {
    Add(of_mixer[static_cast<size_t>(MixerIndex(spec, layer))], &total);
  }
  return total;
}

double PrefillFlop(const StackSpec& spec, int64_t begin, int64_t count, const MixerKinds& kinds) {
  // Costs change slowly but for the window, which grows by a token each within a chunk: the middle of short runs is
  // close to the mean.
  constexpr int64_t kRun = 64;
  double flop = LayerWeightFlop(spec, kinds) * static_cast<double>(count);
  for (int64_t first = 0; first < count; first += kRun) {
    const int64_t run = std::min(kRun, count - first);
    flop += static_cast<double>(run) * CostOfMixers(spec, DType::kF32, begin + first + run / 2, kinds).flop;
  }
  return flop;
}

}  // namespace kvm
