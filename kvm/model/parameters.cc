#include "kvm/model/parameters.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvm/model/mixer_parameters.h"
#include "kvm/model/stack_spec.h"

namespace kvm {
namespace {

std::string LayerPrefix(int layer) { return absl::StrCat("transformer.h.", layer, "."); }

void AppendLayerParameters(const StackSpec& spec, int layer, std::vector<Parameter>* parameters) {
  const int64_t width = spec.width();
  const int64_t mlp_width = MlpWidth(spec);
  const LayerPlace place = {layer, spec.layers_size(), width};
  const std::string prefix = LayerPrefix(layer);
  if (spec.block_lambdas()) {
    parameters->push_back(
        {prefix + "lambdas", {2}, Initialization::Values([](int64_t i) { return i == 0 ? 1.0 : 0.0; }), false});
  }
  AppendNorm(prefix + "ln_attn", width, parameters);
  AppendMixerParameters(spec.mixers(MixerIndex(spec, layer)), place, prefix + "attn.", parameters);
  AppendNorm(prefix + "ln_mlp", width, parameters);
  if (spec.mlp_token_shift()) {
    // 1 − (i/D)^((1 − layer/L)^4), as the published code begins.
    const double rest = 1 - static_cast<double>(layer) / place.num_layers;
    parameters->push_back({prefix + "mlp.x_k", {1, 1, width}, ShiftMix(rest * rest * rest, place, width), false});
  }
  parameters->push_back({prefix + "mlp.c_fc.weight", {mlp_width, width}, Initialization::Orthogonal(1), false});
  parameters->push_back({prefix + "mlp.c_proj.weight", {width, mlp_width}, Initialization::Orthogonal(1), true});
}

bool IsFloatingPoint(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF64;
}

}  // namespace

std::vector<Parameter> StackParameters(const StackSpec& spec) {
  const int64_t width = spec.width();
  const int64_t vocab = spec.vocab_size();
  std::vector<Parameter> parameters;
  parameters.push_back({"transformer.wte.weight", {vocab, width}, Initialization::Uniform(1e-4), false});
  AppendNorm("transformer.ln_emb", width, &parameters);
  if (spec.skip_connections()) {
    parameters.push_back({"transformer.skip_weights", {spec.layers_size() / 2}, Initialization::Fill(1), false});
  }
  for (int layer = 0; layer < spec.layers_size(); ++layer) AppendLayerParameters(spec, layer, &parameters);
  AppendNorm("transformer.ln_head", width, &parameters);
  if (!spec.tied_head()) {
    // Small vocabularies take the gain of a square matrix, so that their logits have a spread as well.
    const double gain = 0.5 * std::sqrt(std::max(1.0, static_cast<double>(vocab) / static_cast<double>(width)));
    parameters.push_back({"lm_head.weight", {vocab, width}, Initialization::Orthogonal(gain), false});
  }
  return parameters;
}

absl::Status CheckWeights(const StackSpec& spec, const WeightSource& weights) {
  std::vector<std::string> problems;
  std::set<std::string, std::less<>> known;
  for (const Parameter& parameter : StackParameters(spec)) {
    known.insert(parameter.name);
    const std::optional<TensorInfo> tensor = weights.Info(parameter.name);
    if (!tensor.has_value()) {
      problems.push_back(absl::StrCat(parameter.name, ": missing, expected shape ", ToString(parameter.shape)));
    } else if (tensor->shape != parameter.shape) {
      problems.push_back(absl::StrCat(parameter.name, ": has shape ", ToString(tensor->shape), ", expected ",
                                      ToString(parameter.shape)));
    } else if (!IsFloatingPoint(tensor->dtype)) {
      problems.push_back(
          absl::StrCat(parameter.name, ": has dtype ", Name(tensor->dtype), ", expected F32, BF16, F16 or F64"));
    }
  }
  for (int layer = 0; layer < spec.layers_size(); ++layer) {
    const std::string prefix = LayerPrefix(layer) + "attn.";
    for (std::string& name : UnreadTensors(spec.mixers(MixerIndex(spec, layer)), spec.width(), prefix)) {
      known.insert(std::move(name));
    }
  }
  for (const std::string& name : weights.Names()) {
    if (known.count(name) == 0) problems.push_back(absl::StrCat(name, ": unexpected, this stack has no such tensor"));
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(weights.Description(), ": ", absl::StrJoin(problems, "; ")));
}

int64_t NumParameters(const StackSpec& spec) {
  int64_t elements = 0;
  for (const Parameter& parameter : StackParameters(spec)) elements += NumElements(parameter.shape);
  return elements;
}

}  // namespace kvm
