#include "tools/stack_report.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kvm/io/utf8.h"
#include "kvm/model/parameters.h"
#include "kvm/model/stack_spec.h"
#include "kvm/model/state_size.h"
#include "tools/format.h"

namespace kvm {
namespace {

constexpr int64_t kFirstContext = 1024;
constexpr int64_t kLastContext = 1024 * 1024;

std::string DescribeBudget(const BudgetSpec& budget) {
  switch (budget.growth()) {
    case BudgetSpec::FIXED:
      return budget.min_rows() < 0 ? "rows of one chunk" : FormatCounted(budget.min_rows(), "row");
    case BudgetSpec::POWER_LAW:
      return absl::StrCat(budget.factor(), "*context^", budget.exponent(), " rows");
    case BudgetSpec::SATURATION:
      return absl::StrCat("rows saturating at ", budget.limit());
  }
  return "";
}

std::string DescribeHeads(const ProjectionSpec& projections, int64_t width) {
  const HeadSizes heads = ResolveHeads(projections, width);
  std::string text = absl::StrCat(FormatCounted(heads.num_heads, "head"), " of ", heads.qk_dim);
  if (heads.v_dim != heads.qk_dim) absl::StrAppend(&text, "/", heads.v_dim);
  if (heads.num_kv_heads != heads.num_heads)
    absl::StrAppend(&text, ", ", FormatCounted(heads.num_kv_heads, "key/value head"));
  return absl::StrCat(text, ", rotary ", projections.rotary_dim());
}

std::string DescribeMixer(const MixerSpec& mixer, int64_t width) {
  switch (mixer.kind_case()) {
    case MixerSpec::kKvm:
      return absl::StrCat("KVM, ", DescribeHeads(mixer.kvm().projections(), width), ", window ",
                          FormatCounted(mixer.kvm().window_chunks(), "chunk"), " of ", mixer.kvm().chunk_len(), ", ",
                          DescribeBudget(mixer.kvm().budget()));
    case MixerSpec::kAttention:
      return absl::StrCat(
          mixer.attention().has_window()
              ? absl::StrCat("attention over ", FormatCounted(mixer.attention().window(), "token"), ", ")
              : "full attention, ",
          DescribeHeads(mixer.attention().projections(), width));
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

std::string StateSizeTable(const StackSpec& spec, DType state_dtype) {
  std::vector<std::vector<std::string>> rows = {{"context", "rows", "state", "full cache", "share"}};
  for (int64_t context = kFirstContext; context <= kLastContext; context *= 4) {
    const StateSize size = SequenceStateSize(spec, state_dtype, context);
    const int64_t full = FullCacheByteSize(spec, state_dtype, context);
    rows.push_back({FormatContext(context), size.rows > 0 ? FormatCount(size.rows) : "-", FormatBytes(size.bytes),
                    FormatBytes(full),
                    absl::StrFormat("%.1f%%", 100 * static_cast<double>(size.bytes) / static_cast<double>(full))});
  }
  return FormatTable(rows);
}

nlohmann::json StackToJson(const StackSpec& spec, DType state_dtype) {
  nlohmann::json layers = nlohmann::json::array();
  for (const std::string& name : spec.layers()) layers.push_back(name);
  nlohmann::json mixers = nlohmann::json::object();
  for (const MixerSpec& mixer : spec.mixers()) mixers[mixer.name()] = DescribeMixer(mixer, spec.width());
  nlohmann::json sizes = nlohmann::json::array();
  for (int64_t context = kFirstContext; context <= kLastContext; context *= 4) {
    const StateSize size = SequenceStateSize(spec, state_dtype, context);
    sizes.push_back({{"context", context},
                     {"rows", size.rows},
                     {"state_bytes", size.bytes},
                     {"full_cache_bytes", FullCacheByteSize(spec, state_dtype, context)}});
  }
  return {{"parameters", NumParameters(spec)},
          {"width", spec.width()},
          {"mlp_width", MlpWidth(spec)},
          {"vocab_size", spec.vocab_size()},
          {"layers", layers},
          {"mixers", mixers},
          {"state_dtype", std::string(Name(state_dtype))},
          {"state_sizes", sizes}};
}

}  // namespace kvm
