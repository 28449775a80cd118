#include "tools/report/state_report.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kvm/model/engine/state_size.h"
#include "kvm/model/stack/stack_spec.h"
#include "tools/cli/format.h"

namespace kvm {
namespace {

constexpr int64_t kContexts[] = {1024, 4096, 16384, 65536, 262144, 1048576};

// What one mixer costs.
struct MixerGrowth {
  std::string name;
  int64_t layers = 0;
  bool upper_bound = false;
  std::vector<StateSize> sizes;  // of one layer, at each of kContexts
};

std::vector<MixerGrowth> GrowthOfMixers(const StackSpec& spec, DType state_dtype) {
  std::vector<MixerGrowth> mixers;
  for (const MixerSpec& mixer : spec.mixers()) {
    MixerGrowth growth;
    growth.name = mixer.name();
    growth.layers = std::count(spec.layers().begin(), spec.layers().end(), mixer.name());
    growth.upper_bound = IsUpperBound(mixer);
    for (const int64_t context : kContexts) {
      growth.sizes.push_back(MixerStateSize(mixer, spec.width(), state_dtype, context));
    }
    mixers.push_back(std::move(growth));
  }
  return mixers;
}

// What layers keep beside their mixers, the same at every context.
int64_t ShiftHistoryBytes(const StackSpec& spec, const std::vector<MixerGrowth>& mixers, DType state_dtype) {
  int64_t bytes = SequenceStateSize(spec, state_dtype, kContexts[0]).bytes;
  for (const MixerGrowth& mixer : mixers) bytes -= mixer.layers * mixer.sizes[0].bytes;
  return bytes;
}

// Whether any layer's size is an upper bound.
bool AnyUpperBound(const StackSpec& spec) {
  for (int i = 0; i < spec.layers_size(); ++i) {
    if (IsUpperBound(spec.mixers(MixerIndex(spec, i)))) return true;
  }
  return false;
}

std::string Marked(bool upper_bound, const std::string& number) {
  return absl::StrCat(upper_bound ? "<=" : "", number);
}

// A line of StateGrowthTable: its title and a cell for each size.
template <class Cell>
std::vector<std::string> GrowthLine(const std::string& title, const MixerGrowth& mixer, Cell cell) {
  std::vector<std::string> line = {absl::StrCat("  ", title)};
  for (const StateSize& size : mixer.sizes) line.push_back(Marked(mixer.upper_bound, cell(size)));
  return line;
}

}  // namespace

std::string StateSizeTable(const StackSpec& spec, DType state_dtype) {
  const bool upper_bound = AnyUpperBound(spec);
  std::vector<std::vector<std::string>> rows = {{"context", "rows", "state", "full cache", "share"}};
  for (const int64_t context : kContexts) {
    const StateSize size = SequenceStateSize(spec, state_dtype, context);
    const int64_t full = FullCacheByteSize(spec, state_dtype, context);
    const double share = 100 * static_cast<double>(size.bytes) / static_cast<double>(full);
    rows.push_back({FormatContext(context), size.rows > 0 ? Marked(upper_bound, FormatCount(size.rows)) : "-",
                    Marked(upper_bound, FormatBytes(size.bytes)), FormatBytes(full),
                    Marked(upper_bound, absl::StrFormat("%.1f%%", share))});
  }
  return absl::StrCat(FormatTable(rows), upper_bound ? "<=: at most; how much depends on the text\n" : "");
}

nlohmann::json StateSizesToJson(const StackSpec& spec, DType state_dtype) {
  nlohmann::json sizes = nlohmann::json::array();
  for (const int64_t context : kContexts) {
    const StateSize size = SequenceStateSize(spec, state_dtype, context);
    sizes.push_back({{"context", context},
                     {"rows", size.rows},
                     {"state_bytes", size.bytes},
                     {"full_cache_bytes", FullCacheByteSize(spec, state_dtype, context)},
                     {"upper_bound", AnyUpperBound(spec)}});
  }
  return sizes;
}

std::string StateGrowthTable(const StackSpec& spec, DType state_dtype) {
  const std::vector<MixerGrowth> mixers = GrowthOfMixers(spec, state_dtype);
  std::vector<std::vector<std::string>> lines = {{"mixer by mixer"}};
  for (const int64_t context : kContexts) lines[0].push_back(FormatContext(context));
  const auto add_heading = [&](const std::string& text) {
    lines.push_back({text});
    lines.back().resize(lines[0].size());
  };

  // Mixers without rows have none at the longest context either.
  const auto has_rows = [](const MixerGrowth& mixer) { return mixer.sizes.back().rows > 0; };
  const bool any_rows = std::any_of(mixers.begin(), mixers.end(), has_rows);
  if (any_rows) add_heading("rows of one layer");
  for (const MixerGrowth& mixer : mixers) {
    if (!any_rows) break;
    lines.push_back(GrowthLine(mixer.name, mixer, [](const StateSize& size) { return FormatCount(size.rows); }));
    if (!has_rows(mixer)) std::fill(lines.back().begin() + 1, lines.back().end(), "-");
  }
  add_heading("bytes of one layer");
  for (const MixerGrowth& mixer : mixers) {
    lines.push_back(GrowthLine(mixer.name, mixer, [](const StateSize& size) { return FormatBytes(size.bytes); }));
  }
  add_heading("bytes of all its layers");
  for (const MixerGrowth& mixer : mixers) {
    lines.push_back(GrowthLine(absl::StrCat(mixer.name, " x ", mixer.layers), mixer,
                               [&](const StateSize& size) { return FormatBytes(mixer.layers * size.bytes); }));
  }
  if (const int64_t bytes = ShiftHistoryBytes(spec, mixers, state_dtype); bytes > 0) {
    lines.emplace_back(lines[0].size(), FormatBytes(bytes));
    lines.back()[0] = "  other shift histories";
  }
  return FormatTable(lines);
}

nlohmann::json StateGrowthToJson(const StackSpec& spec, DType state_dtype) {
  const std::vector<MixerGrowth> mixers = GrowthOfMixers(spec, state_dtype);
  nlohmann::json list = nlohmann::json::array();
  for (const MixerGrowth& mixer : mixers) {
    nlohmann::json sizes = nlohmann::json::array();
    for (size_t i = 0; i < mixer.sizes.size(); ++i) {
      sizes.push_back({{"context", kContexts[i]},
                       {"rows", mixer.sizes[i].rows},
                       {"layer_bytes", mixer.sizes[i].bytes},
                       {"bytes", mixer.layers * mixer.sizes[i].bytes}});
    }
    list.push_back({{"name", mixer.name},
                    {"layers", mixer.layers},
                    {"upper_bound", mixer.upper_bound},
                    {"sizes", std::move(sizes)}});
  }
  return {{"mixers", std::move(list)}, {"shift_history_bytes", ShiftHistoryBytes(spec, mixers, state_dtype)}};
}

}  // namespace kvm
