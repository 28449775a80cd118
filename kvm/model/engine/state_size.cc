#include "kvm/model/engine/state_size.h"

#include <algorithm>
#include <vector>

#include "kvm/model/stack/model_options.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);

// More than any machine has; twice as much fits int64.
constexpr int64_t kMostBytes = int64_t{1} << 61;

}  // namespace

StateSize MixerStateSize(const MixerSpec& spec, int64_t width, DType dtype, int64_t context, bool provenance,
                         const MixerKinds& kinds) {
  return kinds.Of(spec).state_size(spec, width, {dtype, context, provenance});
}

bool IsUpperBound(const MixerSpec& spec, const MixerKinds& kinds) {
  const MixerKind& kind = kinds.Of(spec);
  return kind.is_upper_bound != nullptr && kind.is_upper_bound(spec);
}

StateSize SequenceStateSize(const StackSpec& spec, DType dtype, int64_t context, bool provenance,
                            const MixerKinds& kinds) {
  const int64_t width = spec.width();
  std::vector<StateSize> of_mixer;
  for (const MixerSpec& mixer : spec.mixers()) {
    of_mixer.push_back(MixerStateSize(mixer, width, dtype, context, provenance, kinds));
  }
  std::vector<bool> is_anchor(static_cast<size_t>(spec.layers_size()));
  for (int i = 0; i < spec.layers_size(); ++i) {
    const int anchor = AnchorLayer(spec, i, kinds);
    if (anchor >= 0) is_anchor[static_cast<size_t>(anchor)] = true;
  }

  StateSize total;
  for (int i = 0; i < spec.layers_size(); ++i) {
    const int mixer = MixerIndex(spec, i);
    const StateSize& size = of_mixer[static_cast<size_t>(mixer)];
    total.rows = std::max(total.rows, size.rows);
    // The largest valid specs would not fit int64.
    total.bytes = std::min(total.bytes + size.bytes, kMostBytes);
    if (spec.mlp_token_shift()) total.bytes += width * kFloatBytes;
    const MixerKind& kind = kinds.Of(spec.mixers(mixer));
    const bool anchor_shifts = kind.anchor_shifts != nullptr && kind.anchor_shifts(spec.mixers(mixer));
    if (is_anchor[static_cast<size_t>(i)] && anchor_shifts) total.bytes += width * kFloatBytes;
  }
  return total;
}

int64_t FullCacheByteSize(const StackSpec& spec, DType dtype, int64_t context, const MixerKinds& kinds) {
  // Layers without heads of that kind count as the first layer that has them, or as one key and one value of the width.
  int64_t default_channels = 2 * spec.width();
  std::vector<int64_t> channels;
  for (int i = spec.layers_size() - 1; i >= 0; --i) {
    const MixerSpec& mixer = spec.mixers(MixerIndex(spec, i));
    if (!HasProjections(mixer, kinds)) {
      channels.push_back(-1);
      continue;
    }
    const HeadSizes heads = ResolveHeads(Projections(mixer, kinds), spec.width());
    default_channels = heads.num_kv_heads * (heads.qk_dim + heads.v_dim);
    channels.push_back(default_channels);
  }
  int64_t total = 0;
  for (const int64_t of_layer : channels) total += of_layer < 0 ? default_channels : of_layer;
  return total * context * SizeOf(WindowDType(dtype));
}

}  // namespace kvm
