#include "kvm/model/weights/parameters.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/tensor_problems.h"

namespace kvm {
namespace {

constexpr char kLayers[] = "transformer.h.";

std::string LayerPrefix(int layer) { return absl::StrCat(kLayers, layer, "."); }

std::vector<Parameter> LayerParameters(const StackSpec& spec, int layer, const MixerKinds& kinds) {
  const int64_t width = spec.width();
  const int64_t mlp_width = MlpWidth(spec);
  const LayerPlace place = {layer, spec.layers_size(), width};
  const std::string prefix = LayerPrefix(layer);
  std::vector<Parameter> parameters;
  if (spec.block_lambdas()) {
    parameters.push_back(
        {prefix + "lambdas", {2}, Initialization::Values([](int64_t i) { return i == 0 ? 1.0 : 0.0; }), false});
  }
  AppendNorm(prefix + "ln_attn", width, &parameters);
  const MixerSpec& mixer = spec.mixers(MixerIndex(spec, layer));
  kinds.Of(mixer).append_parameters(mixer, place, prefix + "attn.", &parameters);
  AppendNorm(prefix + "ln_mlp", width, &parameters);
  if (spec.mlp_token_shift()) {
    // 1 − (i/D)^((1 − layer/L)^4), as the published code begins.
    const double rest = 1 - static_cast<double>(layer) / place.num_layers;
    parameters.push_back({prefix + "mlp.x_k", {1, 1, width}, ShiftMix(rest * rest * rest, place, width), false});
  }
  parameters.push_back({prefix + "mlp.c_fc.weight", {mlp_width, width}, Initialization::Orthogonal(1), false});
  parameters.push_back({prefix + "mlp.c_proj.weight", {width, mlp_width}, Initialization::Orthogonal(1), true});
  return parameters;
}

std::vector<Parameter> ParametersBeforeLayers(const StackSpec& spec) {
  const int64_t width = spec.width();
  std::vector<Parameter> parameters;
  parameters.push_back({"transformer.wte.weight", {spec.vocab_size(), width}, Initialization::Uniform(1e-4), false});
  AppendNorm("transformer.ln_emb", width, &parameters);
  if (spec.skip_connections()) {
    parameters.push_back({"transformer.skip_weights", {spec.layers_size() / 2}, Initialization::Fill(1), false});
  }
  return parameters;
}

std::vector<Parameter> ParametersAfterLayers(const StackSpec& spec) {
  const int64_t width = spec.width();
  const int64_t vocab = spec.vocab_size();
  std::vector<Parameter> parameters;
  AppendNorm("transformer.ln_head", width, &parameters);
  if (!spec.tied_head()) {
    // Small vocabularies take the gain of a square matrix, so that their logits have a spread as well.
    const double gain = 0.5 * std::sqrt(std::max(1.0, static_cast<double>(vocab) / static_cast<double>(width)));
    parameters.push_back({"lm_head.weight", {vocab, width}, Initialization::Orthogonal(gain), false});
  }
  return parameters;
}

}  // namespace

std::vector<Parameter> StackParameters(const StackSpec& spec, const MixerKinds& kinds) {
  std::vector<Parameter> parameters;
  ForEachParameter(
      spec, [&](const Parameter& parameter) { parameters.push_back(parameter); }, kinds);
  return parameters;
}

void ForEachParameter(const StackSpec& spec, absl::FunctionRef<void(const Parameter& parameter)> visit,
                      const MixerKinds& kinds) {
  const auto visit_all = [&](const std::vector<Parameter>& parameters) {
    for (const Parameter& parameter : parameters) visit(parameter);
  };
  visit_all(ParametersBeforeLayers(spec));
  for (int layer = 0; layer < spec.layers_size(); ++layer) visit_all(LayerParameters(spec, layer, kinds));
  visit_all(ParametersAfterLayers(spec));
}

absl::Status CheckWeights(const StackSpec& spec, const WeightSource& weights, const MixerKinds& kinds) {
  const std::vector<std::string> names = weights.Names();
  assert(std::is_sorted(names.begin(), names.end()));
  std::vector<bool> is_known(names.size());
  const auto know = [&](const std::string& name) {
    const auto found = std::lower_bound(names.begin(), names.end(), name);
    if (found != names.end() && *found == name) is_known[static_cast<size_t>(found - names.begin())] = true;
  };
  std::vector<bool> is_there(static_cast<size_t>(spec.layers_size()));
  for (const std::string& name : names) {
    const std::optional<LayerName> split = SplitLayerName(name, kLayers);
    if (split.has_value() && split->layer < spec.layers_size()) is_there[static_cast<size_t>(split->layer)] = true;
  }

  TensorProblems problems(kLayers);
  const auto check = [&](const std::vector<Parameter>& parameters) {
    for (const Parameter& parameter : parameters) {
      know(parameter.name);
      const std::string problem = ProblemOf(weights.Info(parameter.name), parameter.shape);
      if (!problem.empty()) problems.Add(parameter.name, problem);
    }
  };
  check(ParametersBeforeLayers(spec));
  for (int layer = 0; layer < spec.layers_size(); ++layer) {
    if (!is_there[static_cast<size_t>(layer)]) {
      problems.AddMissingLayer(layer);
      continue;
    }
    check(LayerParameters(spec, layer, kinds));
    const MixerSpec& mixer = spec.mixers(MixerIndex(spec, layer));
    const MixerKind& kind = kinds.Of(mixer);
    if (kind.unread_tensors == nullptr) continue;
    for (const std::string& name : kind.unread_tensors(mixer, spec.width(), LayerPrefix(layer) + "attn.")) know(name);
  }
  check(ParametersAfterLayers(spec));
  for (size_t i = 0; i < names.size(); ++i) {
    if (!is_known[i]) problems.Add(names[i], "unexpected, this stack has no such tensor");
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(weights.Description(), ": ", problems.Join()));
}

int64_t NumParameters(const StackSpec& spec, const MixerKinds& kinds) {
  int64_t elements = 0;
  ForEachParameter(
      spec, [&](const Parameter& parameter) { elements += NumElements(parameter.shape); }, kinds);
  return elements;
}

}  // namespace kvm
