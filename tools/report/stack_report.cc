#include "tools/report/stack_report.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "kvm/base/file/utf8.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/parameters.h"
#include "tools/cli/format.h"
#include "tools/report/state_report.h"

namespace kvm {

namespace {

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

std::string MixerTitle(const MixerSpec& mixer, int64_t width, const MixerKinds& kinds) {
  const std::string description = kinds.Of(mixer).describe(mixer, width);
  return description.substr(0, description.find(','));
}

std::string DescribeStack(const StackSpec& spec, const MixerKinds& kinds) {
  std::string text = absl::StrCat(FormatCounted(NumParameters(spec, kinds), "parameter"), ": ",
                                  FormatCounted(spec.layers_size(), "layer"), ", width ", spec.width(), ", MLP ",
                                  MlpWidth(spec), ", vocabulary ", spec.vocab_size(), "\n");
  for (int i = 0; i < spec.mixers_size(); ++i) {
    const MixerSpec& mixer = spec.mixers(i);
    absl::StrAppend(&text, "  ", Printable(mixer.name()), ": ", kinds.Of(mixer).describe(mixer, spec.width()),
                    "; layers ", LayersOf(spec, i), "\n");
  }
  return text;
}

nlohmann::json StackToJson(const StackSpec& spec, DType state_dtype, const MixerKinds& kinds) {
  nlohmann::json layers = nlohmann::json::array();
  for (const std::string& name : spec.layers()) layers.push_back(name);
  nlohmann::json mixers = nlohmann::json::object();
  for (const MixerSpec& mixer : spec.mixers()) mixers[mixer.name()] = kinds.Of(mixer).describe(mixer, spec.width());
  return {{"parameters", NumParameters(spec, kinds)},
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
