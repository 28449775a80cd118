#include "kvm/model/state_size.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "kvm/model/mixers/attention_mixer.h"
#include "kvm/model/mixers/ovq_mixer.h"
#include "kvm/model/stack/delta_net_spec.h"
#include "kvm/model/stack/model_options.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/state/block_window.h"
#include "kvm/state/ovq_memory.h"
#include "kvm/state/slot_budget.h"
#include "kvm/state/slot_memory.h"

namespace kvm {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);

// More than any machine has; twice as much fits int64.
constexpr int64_t kMostBytes = int64_t{1} << 61;

int64_t BlocksOf(int64_t positions, int64_t block_len) { return (positions + block_len - 1) / block_len; }

int64_t ShiftHistoryBytes(const ProjectionSpec& spec, const HeadSizes& heads, int64_t width) {
  int64_t channels = 0;
  if (spec.token_shift()) {
    channels += heads.num_heads * heads.qk_dim + heads.num_kv_heads * (heads.qk_dim + heads.v_dim) + width;
  } else if (spec.value_residual() == ProjectionSpec::RWKV_POST_TOKEN_SHIFT) {
    channels += width;
  }
  return channels * kFloatBytes;
}

int64_t AttentionBytes(const AttentionSpec& spec, int64_t width, DType dtype, int64_t context) {
  const HeadSizes heads = ResolveHeads(spec.projections(), width);
  const BlockWindowShape shape = {heads.num_kv_heads, heads.qk_dim, heads.v_dim, kAttentionBlock, dtype};
  // Blocks wholly before what the next query sees are gone.
  const int64_t first_seen = spec.has_window() ? std::max<int64_t>(0, context - spec.window() + 1) : 0;
  const int64_t blocks = BlocksOf(context, kAttentionBlock) - first_seen / kAttentionBlock;
  return ShiftHistoryBytes(spec.projections(), heads, width) + blocks * BlockWindow::BlockByteSize(shape);
}

// With a budget that adapts to what is read: the most rows there can be.
int64_t KvmRows(const KvmSpec& spec, const SlotBudget& budget, int64_t context) {
  const int64_t chunk = spec.chunk_len();
  const int64_t window = chunk * spec.window_chunks();
  const int64_t window_begin = std::max<int64_t>(0, BlocksOf(context, chunk) * chunk - window);
  int64_t rows = std::min(context, chunk);
  for (int64_t dropped = chunk; dropped < window_begin; dropped += chunk) {
    rows = std::min(TargetRows(budget, dropped + window, dropped + chunk, chunk, rows), rows + chunk);
  }
  return rows;
}

StateSize KvmSize(const KvmSpec& spec, int64_t width, DType dtype, int64_t context, bool provenance) {
  const HeadSizes heads = ResolveHeads(spec.projections(), width);
  const int64_t chunk = spec.chunk_len();
  const BlockWindowShape shape = {heads.num_kv_heads, heads.qk_dim, heads.v_dim, chunk, WindowDType(dtype)};
  const int64_t blocks = std::min<int64_t>(BlocksOf(context, chunk), spec.window_chunks());
  const int64_t window_begin = (BlocksOf(context, chunk) - blocks) * chunk;
  StateSize size;
  size.bytes = ShiftHistoryBytes(spec.projections(), heads, width) + blocks * BlockWindow::BlockByteSize(shape);
  const auto add = [&](const BudgetSpec& budget, int64_t num_heads) {
    const int64_t rows = KvmRows(spec, ToSlotBudget(budget), context);
    size.rows = std::max(size.rows, rows);
    size.bytes += num_heads * SlotMemory::ByteSizeOf(rows, heads.qk_dim, heads.v_dim, dtype);
  };
  for (const BudgetSpec& budget : spec.head_budgets()) add(budget, 1);
  if (spec.head_budgets().empty()) add(spec.budget(), heads.num_kv_heads);
  if (spec.gate_keys() || spec.gate_values()) {
    size.bytes += heads.num_kv_heads * (context - window_begin) * kFloatBytes;
  }
  if (provenance) {
    const int64_t covered = std::max(std::min(context, chunk), window_begin);
    size.bytes += heads.num_kv_heads * covered * static_cast<int64_t>(sizeof(int32_t));
  }
  return size;
}

// A matrix [K, V] per value head and the raw projections that the convolutions still need; always float32.
int64_t DeltaNetBytes(const DeltaNetSpec& spec) {
  const int64_t matrices = spec.num_value_heads * spec.qk_dim * spec.v_dim;
  return (matrices + spec.history() * (2 * spec.qk_width() + spec.value_width())) * kFloatBytes;
}

int64_t BlockWindowBytes(const BlockWindowSpec& spec, int64_t width, DType dtype, int64_t context) {
  const HeadSizes heads = ResolveHeads(spec.projections(), width);
  BlockWindowShape shape = {heads.num_kv_heads, heads.qk_dim, heads.v_dim, spec.chunk_len(), dtype};
  const int64_t all_blocks = BlocksOf(context, spec.chunk_len());
  const int64_t blocks = std::min<int64_t>(all_blocks, spec.window_chunks());
  int64_t bytes = ShiftHistoryBytes(spec.projections(), heads, width) + blocks * BlockWindow::BlockByteSize(shape);
  // Sinks get a block of their own when the window leaves them behind.
  if (all_blocks > blocks && spec.num_sinks() > 0) {
    shape.block_len = spec.num_sinks();
    bytes += BlockWindow::BlockByteSize(shape);
  }
  return bytes;
}

StateSize OvqSize(const OvqSpec& spec, int64_t width, DType dtype, int64_t context) {
  const HeadSizes heads = ResolveHeads(spec.projections(), width);
  const BlockWindowShape shape = {heads.num_heads, heads.qk_dim, heads.v_dim, spec.chunk_len(), dtype};
  const int64_t pending = context % spec.chunk_len();
  StateSize size;
  size.rows = DictionarySize(ToOvqSchedule(spec), context - pending);
  size.bytes = ShiftHistoryBytes(spec.projections(), heads, width) +
               BlocksOf(pending, spec.chunk_len()) * BlockWindow::BlockByteSize(shape) +
               heads.num_heads * OvqMemory::ByteSizeOf(size.rows, heads.v_dim);
  return size;
}

}  // namespace

StateSize MixerStateSize(const MixerSpec& spec, int64_t width, DType dtype, int64_t context, bool provenance) {
  if (!spec.has_kvm()) dtype = WindowDType(dtype);
  switch (spec.kind_case()) {
    case MixerSpec::kAttention:
      return {0, AttentionBytes(spec.attention(), width, dtype, context)};
    case MixerSpec::kKvm:
      return KvmSize(spec.kvm(), width, dtype, context, provenance);
    case MixerSpec::kBlockWindow:
      return {0, BlockWindowBytes(spec.block_window(), width, dtype, context)};
    case MixerSpec::kOvq:
      return OvqSize(spec.ovq(), width, dtype, context);
    case MixerSpec::kRwkv7:
      // A matrix [d, d] per head and the last input; always float32.
      return {0, (width * (width / spec.rwkv7().num_heads()) + width) * kFloatBytes};
    case MixerSpec::kGatedDeltaNet:
    case MixerSpec::kKimiDelta:
      return {0, DeltaNetBytes(ResolveDeltaNet(spec, width))};
    case MixerSpec::KIND_NOT_SET:
      break;
  }
  return {};
}

bool IsUpperBound(const MixerSpec& spec) {
  if (!spec.has_kvm()) return false;
  const auto adapts = [](const BudgetSpec& budget) {
    return budget.append_below() != std::numeric_limits<double>::infinity();
  };
  const auto& budgets = spec.kvm().head_budgets();
  return budgets.empty() ? adapts(spec.kvm().budget()) : std::any_of(budgets.begin(), budgets.end(), adapts);
}

StateSize SequenceStateSize(const StackSpec& spec, DType dtype, int64_t context, bool provenance) {
  const int64_t width = spec.width();
  std::vector<StateSize> of_mixer;
  for (const MixerSpec& mixer : spec.mixers()) {
    of_mixer.push_back(MixerStateSize(mixer, width, dtype, context, provenance));
  }
  std::vector<bool> is_anchor(static_cast<size_t>(spec.layers_size()));
  for (int i = 0; i < spec.layers_size(); ++i) {
    const int anchor = AnchorLayer(spec, i);
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
    const MixerSpec& kind = spec.mixers(mixer);
    const bool anchor_shifts = kind.has_rwkv7() && kind.rwkv7().token_shift();
    if (is_anchor[static_cast<size_t>(i)] && anchor_shifts) total.bytes += width * kFloatBytes;
  }
  return total;
}

int64_t FullCacheByteSize(const StackSpec& spec, DType dtype, int64_t context) {
  // Layers without heads of that kind count as the first layer that has them, or as one key and one value of the width.
  int64_t default_channels = 2 * spec.width();
  std::vector<int64_t> channels;
  for (int i = spec.layers_size() - 1; i >= 0; --i) {
    const MixerSpec& mixer = spec.mixers(MixerIndex(spec, i));
    if (!HasProjections(mixer)) {
      channels.push_back(-1);
      continue;
    }
    const HeadSizes heads = ResolveHeads(Projections(mixer), spec.width());
    default_channels = heads.num_kv_heads * (heads.qk_dim + heads.v_dim);
    channels.push_back(default_channels);
  }
  int64_t total = 0;
  for (const int64_t of_layer : channels) total += of_layer < 0 ? default_channels : of_layer;
  return total * context * SizeOf(WindowDType(dtype));
}

}  // namespace kvm
