#include "kvm/bench/token_cost.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "kvm/model/stack/delta_net_spec.h"
#include "kvm/model/stack/model_options.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/state_size.h"
#include "kvm/model/weights/parameters.h"

namespace kvm {
namespace {

constexpr char kEmbedding[] = "transformer.wte.weight";
constexpr char kHead[] = "lm_head.weight";

double Product(int64_t a, int64_t b, int64_t c) {
  return static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c);
}

// `keys` seen by every query head, kept once a key/value head in `dtype`.
MixerCost CostOfKeys(const HeadSizes& heads, int64_t keys, DType dtype) {
  const int64_t channels = heads.qk_dim + heads.v_dim;
  MixerCost cost;
  cost.flop = 2 * Product(heads.num_heads, channels, keys);
  // Integers have a scale for each key and each value.
  const int64_t scales = dtype == DType::kI8 ? 2 * static_cast<int64_t>(sizeof(float)) : 0;
  cost.bytes = Product(heads.num_kv_heads, channels * SizeOf(dtype) + scales, keys);
  return cost;
}

void Add(const MixerCost& more, MixerCost* cost) {
  cost->flop += more.flop;
  cost->bytes += more.bytes;
}

// Where the window of `total` tokens begins.
int64_t WindowBegin(int64_t total, int64_t chunk, int64_t window_chunks) {
  return std::max<int64_t>(0, (total + chunk - 1) / chunk * chunk - chunk * window_chunks);
}

MixerCost CostOfKvm(const MixerSpec& mixer, int64_t width, DType dtype, int64_t total) {
  const KvmSpec& spec = mixer.kvm();
  const HeadSizes heads = ResolveHeads(spec.projections(), width);
  const int64_t window_begin = WindowBegin(total, spec.chunk_len(), spec.window_chunks());
  MixerCost cost = CostOfKeys(heads, total - window_begin, WindowDType(dtype));
  if (window_begin > 0) {
    const int64_t rows = MixerStateSize(mixer, width, dtype, total).rows;
    Add(CostOfKeys(heads, rows, dtype), &cost);
    // Every token is routed once.
    cost.flop += 2 * Product(heads.num_kv_heads, heads.qk_dim, rows);
  }
  return cost;
}

MixerCost CostOfOvq(const MixerSpec& mixer, int64_t width, DType dtype, int64_t total) {
  const HeadSizes heads = ResolveHeads(mixer.ovq().projections(), width);
  const int64_t before_chunk = (total - 1) / mixer.ovq().chunk_len() * mixer.ovq().chunk_len();
  const int64_t rows = MixerStateSize(mixer, width, dtype, before_chunk).rows;
  MixerCost cost = CostOfKeys(heads, total - before_chunk, dtype);
  Add(CostOfKeys(heads, rows, DType::kF32), &cost);
  cost.flop += 2 * Product(heads.num_heads, heads.qk_dim, rows);
  return cost;
}

}  // namespace

MixerCost CostOfMixer(const MixerSpec& mixer, int64_t width, DType dtype, int64_t position) {
  const int64_t total = position + 1;
  if (!mixer.has_kvm()) dtype = WindowDType(dtype);
  switch (mixer.kind_case()) {
    case MixerSpec::kAttention: {
      const AttentionSpec& spec = mixer.attention();
      const int64_t keys = spec.has_window() ? std::min<int64_t>(total, spec.window()) : total;
      return CostOfKeys(ResolveHeads(spec.projections(), width), keys, dtype);
    }
    case MixerSpec::kKvm:
      return CostOfKvm(mixer, width, dtype, total);
    case MixerSpec::kBlockWindow: {
      const BlockWindowSpec& spec = mixer.block_window();
      const int64_t begin = WindowBegin(total, spec.chunk_len(), spec.window_chunks());
      const int64_t keys = total - begin + std::min<int64_t>(begin, spec.num_sinks());
      return CostOfKeys(ResolveHeads(spec.projections(), width), keys, dtype);
    }
    case MixerSpec::kOvq:
      return CostOfOvq(mixer, width, dtype, total);
    case MixerSpec::kRwkv7: {
      // Per state element: 2 for κᵀS, 5 for the update, 2 for rᵀS.
      const double elements = static_cast<double>(width) * static_cast<double>(width / mixer.rwkv7().num_heads());
      return {9 * elements, sizeof(float) * elements};
    }
    case MixerSpec::kGatedDeltaNet:
    case MixerSpec::kKimiDelta: {
      // Per state element: 1 for the decay and 2 each for Sᵀk, the update and Sᵀq.
      const DeltaNetSpec spec = ResolveDeltaNet(mixer, width);
      const double elements = Product(spec.num_value_heads, spec.qk_dim, spec.v_dim);
      return {7 * elements, sizeof(float) * elements};
    }
    case MixerSpec::KIND_NOT_SET:
      break;
  }
  return {};
}

double LayerWeightFlop(const StackSpec& spec) {
  double flop = 0;
  for (const Parameter& parameter : StackParameters(spec)) {
    // RWKV-7's r_k is a vector in the shape of a matrix.
    if (parameter.shape.size() != 2 || absl::EndsWith(parameter.name, ".r_k")) continue;
    if (parameter.name == kEmbedding || parameter.name == kHead) continue;
    flop += 2 * static_cast<double>(NumElements(parameter.shape));
  }
  return flop;
}

double HeadFlop(const StackSpec& spec) { return 2 * Product(spec.vocab_size(), spec.width(), 1); }

MixerCost CostOfMixers(const StackSpec& spec, DType dtype, int64_t position) {
  std::vector<MixerCost> of_mixer;
  for (const MixerSpec& mixer : spec.mixers()) {
    of_mixer.push_back(CostOfMixer(mixer, spec.width(), dtype, position));
  }
  MixerCost total;
  for (int layer = 0; layer < spec.layers_size(); ++layer) {
    Add(of_mixer[static_cast<size_t>(MixerIndex(spec, layer))], &total);
  }
  return total;
}

double PrefillFlop(const StackSpec& spec, int64_t begin, int64_t count) {
  // Costs change slowly but for the window, which grows by a token each within a chunk: the middle of short runs is
  // close to the mean.
  constexpr int64_t kRun = 64;
  double flop = LayerWeightFlop(spec) * static_cast<double>(count);
  for (int64_t first = 0; first < count; first += kRun) {
    const int64_t run = std::min(kRun, count - first);
    flop += static_cast<double>(run) * CostOfMixers(spec, DType::kF32, begin + first + run / 2).flop;
  }
  return flop;
}

}  // namespace kvm
