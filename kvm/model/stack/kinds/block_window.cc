// Causal attention over the last chunks and the first tokens.

#include "kvm/state/block_window.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kvm/base/format_count.h"
#include "kvm/model/stack/kinds/kinds.h"
#include "kvm/model/stack/kinds/projections.h"
#include "kvm/model/stack/model_options.h"

namespace kvm {
namespace {

const ProjectionSpec& BlockWindowProjections(const MixerSpec& mixer) { return mixer.block_window().projections(); }
ProjectionSpec* MutableBlockWindowProjections(MixerSpec* mixer) {
  return mixer->mutable_block_window()->mutable_projections();
}

void CheckBlockWindow(const MixerSpec& mixer, int64_t width, const std::string& path, StackChecker* check) {
  const BlockWindowSpec& spec = mixer.block_window();
  CheckProjections(spec.projections(), width, RotaryUse::kAnyChannels, absl::StrCat(path, ".projections"), check);
  check->Whole(absl::StrCat(path, ".chunk_len"), spec.chunk_len(), 1);
  check->Whole(absl::StrCat(path, ".window_chunks"), spec.window_chunks(), 1);
  check->Whole(absl::StrCat(path, ".num_sinks"), spec.num_sinks(), 0);
}

void AppendBlockWindowParameters(const MixerSpec& mixer, const LayerPlace& place, const std::string& prefix,
                                 std::vector<Parameter>* parameters) {
  AppendProjectionParameters(mixer.block_window().projections(), /*head_norms=*/true, place, prefix, parameters);
}

StateSize BlockWindowSize(const MixerSpec& mixer, int64_t width, const StateQuery& query) {
  const BlockWindowSpec& spec = mixer.block_window();
  const HeadSizes heads = ResolveHeads(spec.projections(), width);
  BlockWindowShape shape = {heads.num_kv_heads, heads.qk_dim, heads.v_dim, spec.chunk_len(), WindowDType(query.dtype)};
  const int64_t all_blocks = BlocksOf(query.context, spec.chunk_len());
  const int64_t blocks = std::min<int64_t>(all_blocks, spec.window_chunks());
  int64_t bytes = ShiftHistoryBytes(spec.projections(), width) + blocks * BlockWindow::BlockByteSize(shape);
  // Sinks get a block of their own when the window leaves them behind.
  if (all_blocks > blocks && spec.num_sinks() > 0) {
    shape.block_len = spec.num_sinks();
    bytes += BlockWindow::BlockByteSize(shape);
  }
  return {0, bytes};
}

MixerCost CostOfBlockWindow(const MixerSpec& mixer, int64_t width, DType dtype, int64_t position) {
  const BlockWindowSpec& spec = mixer.block_window();
  const int64_t total = position + 1;
  const int64_t begin = WindowBegin(total, spec.chunk_len(), spec.window_chunks());
  const int64_t keys = total - begin + std::min<int64_t>(begin, spec.num_sinks());
  return CostOfKeys(ResolveHeads(spec.projections(), width), keys, WindowDType(dtype));
}

std::string DescribeBlockWindow(const MixerSpec& mixer, int64_t width) {
  const BlockWindowSpec& spec = mixer.block_window();
  return absl::StrCat("block window, ", DescribeHeads(spec.projections(), width), DescribeRotary(spec.projections()),
                      ", ", DescribeWindow(spec.window_chunks(), spec.chunk_len()), ", ",
                      FormatCounted(spec.num_sinks(), "sink"));
}

absl::Status FillBlockWindow(const PatternSizes& sizes, MixerSpec* mixer) {
  BlockWindowSpec* window = mixer->mutable_block_window();
  FillProjections(sizes, window->mutable_projections());
  window->set_chunk_len(static_cast<int32_t>(sizes.chunk));
  window->set_window_chunks(static_cast<int32_t>(sizes.window_chunks));
  window->set_num_sinks(static_cast<int32_t>(sizes.sinks));
  return absl::OkStatus();
}

constexpr MixerPattern kPatterns[] = {{'B', "block_window", "block window", FillBlockWindow}};

}  // namespace

const MixerKind& BlockWindowKind() {
  static const MixerKind kind = [] {
    MixerKind made;
    made.name = "block_window";
    made.field_number = MixerSpec::kBlockWindowFieldNumber;
    SetProjectionFacts<BlockWindowProjections, MutableBlockWindowProjections>(&made);
    made.check = CheckBlockWindow;
    made.append_parameters = AppendBlockWindowParameters;
    made.state_size = BlockWindowSize;
    made.token_cost = CostOfBlockWindow;
    made.describe = DescribeBlockWindow;
    made.chunk_len = [](const MixerSpec& mixer) -> int64_t { return mixer.block_window().chunk_len(); };
    made.patterns = kPatterns;
    return made;
  }();
  return kind;
}

}  // namespace kvm
