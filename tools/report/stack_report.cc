#include "tools/report/stack_report.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvm/base/file/utf8.h"
#include "kvm/model/stack/delta_net_spec.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/parameters.h"
#include "tools/cli/format.h"
#include "tools/report/state_report.h"

namespace kvm {

int64_t LeastRows(const KvmSpec& kvm, const BudgetSpec& budget) {
  if (budget.growth() != BudgetSpec::POWER_LAW) return 0;
  const double context = static_cast<double>(kvm.chunk_len()) * (kvm.window_chunks() + 1.0);
  const double rows = budget.factor() * std::pow(context, budget.exponent());
  return rows < budget.min_rows() ? budget.min_rows() : 0;
}

namespace {

std::string DescribeBudget(const KvmSpec& kvm, const BudgetSpec& budget) {
  std::string text;
  switch (budget.growth()) {
    case BudgetSpec::FIXED:
      text = budget.min_rows() < 0 ? "rows of one chunk" : FormatCounted(budget.min_rows(), "row");
      break;
    case BudgetSpec::POWER_LAW:
      text = absl::StrCat(budget.factor(), "*context^", budget.exponent(), " rows");
      if (LeastRows(kvm, budget) > 0) absl::StrAppend(&text, ", at least ", LeastRows(kvm, budget));
      break;
    case BudgetSpec::SATURATION:
      text = absl::StrCat("rows saturating at ", budget.limit());
      break;
  }
  if (std::isinf(budget.append_below()) && budget.append_below() > 0) return text;
  return absl::StrCat("at most ", text, ", appending below ", budget.append_below());
}

std::string DescribeHeads(const ProjectionSpec& projections, int64_t width) {
  const HeadSizes heads = ResolveHeads(projections, width);
  std::string text = absl::StrCat(FormatCounted(heads.num_heads, "head"), " of ", heads.qk_dim);
  if (heads.v_dim != heads.qk_dim) absl::StrAppend(&text, "/", heads.v_dim);
  if (heads.num_kv_heads != heads.num_heads)
    absl::StrAppend(&text, ", ", FormatCounted(heads.num_kv_heads, "key/value head"));
  return text;
}

std::string RotaryOf(const ProjectionSpec& projections) { return absl::StrCat(", rotary ", projections.rotary_dim()); }

std::string DescribeWindow(int64_t chunks, int64_t chunk_len) {
  return absl::StrCat("window ", FormatCounted(chunks, "chunk"), " of ", chunk_len);
}

std::string DescribeKvm(const KvmSpec& spec, int64_t width) {
  std::string text = absl::StrCat("KVM, ", DescribeHeads(spec.projections(), width), RotaryOf(spec.projections()), ", ",
                                  DescribeWindow(spec.window_chunks(), spec.chunk_len()), ", ");
  if (spec.head_budgets().empty()) {
    absl::StrAppend(&text, DescribeBudget(spec, spec.budget()));
  } else {
    const auto append = [&](std::string* out, const BudgetSpec& budget) { out->append(DescribeBudget(spec, budget)); };
    absl::StrAppend(&text, "head by head ", absl::StrJoin(spec.head_budgets(), " | ", append));
  }
  if (spec.second_merge() != 0) absl::StrAppend(&text, ", second merge ", spec.second_merge());
  if (spec.merge_decay() != 1) absl::StrAppend(&text, ", merge decay ", spec.merge_decay());
  if (spec.separate_rotary()) absl::StrAppend(&text, ", separate rotary");
  return text;
}

std::string DescribeOvq(const OvqSpec& spec, int64_t width) {
  return absl::StrCat("OVQ, ", DescribeHeads(spec.projections(), width), ", chunks of ", spec.chunk_len(), ", up to ",
                      FormatCounted(spec.max_centroids(), "centroid"), spec.delta_rule() ? ", delta rule" : "");
}

std::string DescribeDeltaNet(const std::string& title, const DeltaNetSpec& spec) {
  std::string text = absl::StrCat(title, ", ", FormatCounted(spec.num_heads, "head"), " of ", spec.qk_dim);
  if (spec.v_dim != spec.qk_dim) absl::StrAppend(&text, "/", spec.v_dim);
  if (spec.num_value_heads != spec.num_heads)
    absl::StrAppend(&text, ", ", FormatCounted(spec.num_value_heads, "value head"));
  return absl::StrCat(text, spec.conv_size > 0 ? absl::StrCat(", convolution ", spec.conv_size) : "");
}

std::string DescribeMixer(const MixerSpec& mixer, int64_t width) {
  switch (mixer.kind_case()) {
    case MixerSpec::kKvm:
      return DescribeKvm(mixer.kvm(), width);
    case MixerSpec::kBlockWindow:
      return absl::StrCat("block window, ", DescribeHeads(mixer.block_window().projections(), width),
                          RotaryOf(mixer.block_window().projections()), ", ",
                          DescribeWindow(mixer.block_window().window_chunks(), mixer.block_window().chunk_len()), ", ",
                          FormatCounted(mixer.block_window().num_sinks(), "sink"));
    case MixerSpec::kOvq:
      return DescribeOvq(mixer.ovq(), width);
    case MixerSpec::kGatedDeltaNet:
      return DescribeDeltaNet("Gated DeltaNet", ResolveDeltaNet(mixer, width));
    case MixerSpec::kKimiDelta:
      return DescribeDeltaNet("Kimi Delta Attention", ResolveDeltaNet(mixer, width));
    case MixerSpec::kAttention:
      return absl::StrCat(
          mixer.attention().has_window()
              ? absl::StrCat("attention over ", FormatCounted(mixer.attention().window(), "token"), ", ")
              : "full attention, ",
          DescribeHeads(mixer.attention().projections(), width), RotaryOf(mixer.attention().projections()));
    case MixerSpec::kRwkv7:
      return absl::StrCat("RWKV-7, ", FormatCounted(mixer.rwkv7().num_heads(), "head"), " of ",
                          width / mixer.rwkv7().num_heads());
    case MixerSpec::KIND_NOT_SET:
      break;
  }
  return "";
}

// Which layers a mixer has: "0-2, 4-6".
std::string LayersOf(const StackSpec& spec, int mixer) {
  std::string text;
  for (int i = 0; i < spec.layers_size(); ++i) {
    if (MixerIndex(spec, i) != mixer) continue;
    int last = i;
    while (last + 1 < spec.layers_size() && MixerIndex(spec, last + 1) == mixer) ++last;
    absl::StrAppend(&text, text.empty() ? "" : ", ", i);
    if (last > i) absl::StrAppend(&text, "-", last);
    i = last;
  }
  return text.empty() ? "none" : text;
}

}  // namespace

std::string MixerKind(const MixerSpec& mixer, int64_t width) {
  const std::string description = DescribeMixer(mixer, width);
  return description.substr(0, description.find(','));
}

std::string DescribeStack(const StackSpec& spec) {
  std::string text =
      absl::StrCat(FormatCounted(NumParameters(spec), "parameter"), ": ", FormatCounted(spec.layers_size(), "layer"),
                   ", width ", spec.width(), ", MLP ", MlpWidth(spec), ", vocabulary ", spec.vocab_size(), "\n");
  for (int i = 0; i < spec.mixers_size(); ++i) {
    const MixerSpec& mixer = spec.mixers(i);
    absl::StrAppend(&text, "  ", Printable(mixer.name()), ": ", DescribeMixer(mixer, spec.width()), "; layers ",
                    LayersOf(spec, i), "\n");
  }
  return text;
}

nlohmann::json StackToJson(const StackSpec& spec, DType state_dtype) {
  nlohmann::json layers = nlohmann::json::array();
  for (const std::string& name : spec.layers()) layers.push_back(name);
  nlohmann::json mixers = nlohmann::json::object();
  for (const MixerSpec& mixer : spec.mixers()) mixers[mixer.name()] = DescribeMixer(mixer, spec.width());
  return {{"parameters", NumParameters(spec)},
          {"width", spec.width()},
          {"mlp_width", MlpWidth(spec)},
          {"vocab_size", spec.vocab_size()},
          {"layers", layers},
          {"mixers", mixers},
          {"state_dtype", std::string(Name(state_dtype))},
          {"state_sizes", StateSizesToJson(spec, state_dtype)},
          {"state_growth", StateGrowthToJson(spec, state_dtype)}};
}

}  // namespace kvm
