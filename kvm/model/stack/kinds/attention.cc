// Softmax attention over all earlier tokens, or over a sliding window of them.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kvm/base/format_count.h"
#include "kvm/model/stack/kinds/kinds.h"
#include "kvm/model/stack/kinds/projections.h"
#include "kvm/model/stack/model_options.h"
#include "kvm/state/block_window.h"

namespace kvm {
namespace {

const ProjectionSpec& AttentionProjections(const MixerSpec& mixer) { return mixer.attention().projections(); }
ProjectionSpec* MutableAttentionProjections(MixerSpec* mixer) {
  return mixer->mutable_attention()->mutable_projections();
}

void CheckAttention(const MixerSpec& mixer, int64_t width, const std::string& path, StackChecker* check) {
  const AttentionSpec& spec = mixer.attention();
  CheckProjections(spec.projections(), width, RotaryUse::kAnyChannels, absl::StrCat(path, ".projections"), check);
  if (spec.has_window()) check->Whole(absl::StrCat(path, ".window"), spec.window(), 1);
}

void AppendAttentionParameters(const MixerSpec& mixer, const LayerPlace& place, const std::string& prefix,
                               std::vector<Parameter>* parameters) {
  AppendProjectionParameters(mixer.attention().projections(), /*head_norms=*/true, place, prefix, parameters);
}

StateSize AttentionSize(const MixerSpec& mixer, int64_t width, const StateQuery& query) {
  const AttentionSpec& spec = mixer.attention();
  const HeadSizes heads = ResolveHeads(spec.projections(), width);
  const BlockWindowShape shape = {heads.num_kv_heads, heads.qk_dim, heads.v_dim, kAttentionBlock,
                                  WindowDType(query.dtype)};
  // Blocks wholly before what the next query sees are gone.
  const int64_t first_seen = spec.has_window() ? std::max<int64_t>(0, query.context - spec.window() + 1) : 0;
  const int64_t blocks = BlocksOf(query.context, kAttentionBlock) - first_seen / kAttentionBlock;
  return {0, ShiftHistoryBytes(spec.projections(), width) + blocks * BlockWindow::BlockByteSize(shape)};
}

MixerCost CostOfAttention(const MixerSpec& mixer, int64_t width, DType dtype, int64_t position) {
  const AttentionSpec& spec = mixer.attention();
  const int64_t total = position + 1;
  const int64_t keys = spec.has_window() ? std::min<int64_t>(total, spec.window()) : total;
  return CostOfKeys(ResolveHeads(spec.projections(), width), keys, WindowDType(dtype));
}

std::string DescribeAttention(const MixerSpec& mixer, int64_t width) {
  const AttentionSpec& spec = mixer.attention();
  const std::string title =
      spec.has_window() ? absl::StrCat("attention over ", FormatCounted(spec.window(), "token")) : "full attention";
  return absl::StrCat(title, ", ", DescribeHeads(spec.projections(), width), DescribeRotary(spec.projections()));
}

absl::Status FillAttention(const PatternSizes& sizes, MixerSpec* mixer) {
  FillProjections(sizes, mixer->mutable_attention()->mutable_projections());
  return absl::OkStatus();
}

absl::Status FillSlidingWindow(const PatternSizes& sizes, MixerSpec* mixer) {
  mixer->mutable_attention()->set_window(static_cast<int32_t>(sizes.sliding_window));
  return FillAttention(sizes, mixer);
}

constexpr absl::string_view kMeaningful[] = {"window"};
constexpr MixerPattern kPatterns[] = {
    {'A', "attention", "full attention", FillAttention},
    {'S', "sliding_window", "sliding window", FillSlidingWindow},
};

}  // namespace

const MixerKind& AttentionKind() {
  static const MixerKind kind = [] {
    MixerKind made;
    made.name = "attention";
    made.field_number = MixerSpec::kAttentionFieldNumber;
    SetProjectionFacts<AttentionProjections, MutableAttentionProjections>(&made);
    made.check = CheckAttention;
    made.append_parameters = AppendAttentionParameters;
    made.state_size = AttentionSize;
    made.token_cost = CostOfAttention;
    made.describe = DescribeAttention;
    made.meaningful_fields = kMeaningful;
    made.patterns = kPatterns;
    return made;
  }();
  return kind;
}

}  // namespace kvm
