#include "testing/golden_layer.h"

#include <optional>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/json/json_fields.h"
#include "kvm/model/mixers/new_mixer.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/layer_weights.h"
#include "nlohmann/json.hpp"

namespace kvm {
namespace {

int32_t Required(const std::string& key, JsonFields* fields) {
  const std::optional<int32_t> value = fields->OptionalWhole(key);
  if (!value.has_value()) fields->AddProblem(key, "a whole number");
  return value.value_or(1);
}

// The fields of both kinds.
template <class Spec>
void ReadLayer(double default_expand_v, JsonFields* fields, Spec* spec) {
  spec->set_num_heads(Required("num_heads", fields));
  if (const auto heads = fields->OptionalWhole("num_v_heads")) spec->set_num_value_heads(*heads);
  spec->set_qk_head_dim(Required("head_dim", fields));
  const double v_dim = spec->qk_head_dim() * fields->Number("expand_v", default_expand_v);
  if (v_dim >= 1 && v_dim < 1e9) {
    spec->set_v_head_dim(static_cast<int32_t>(v_dim));
  } else {
    fields->AddProblem("expand_v", absl::StrCat("a number that gives at least one channel, not ", v_dim));
  }
  spec->mutable_convolution()->set_enabled(fields->Flag("use_short_conv", true));
  spec->mutable_convolution()->set_size(fields->Whole("conv_size", 4));
  spec->mutable_convolution()->set_bias(fields->Flag("conv_bias", false));
  spec->set_allow_negative_eigenvalues(fields->Flag("allow_neg_eigval", false));
  spec->set_norm_epsilon(fields->Number("norm_eps", 1e-5));
}

// The kinds of layer, by their names in config.json.
struct LayerReader {
  const char* name;
  void (*read)(JsonFields* fields, MixerSpec* mixer);
};
constexpr LayerReader kLayerReaders[] = {
    {"gated_deltanet",
     [](JsonFields* fields, MixerSpec* mixer) {
       GatedDeltaNetSpec& spec = *mixer->mutable_gated_delta_net();
       ReadLayer(2, fields, &spec);
       spec.set_output_gate(fields->Flag("use_gate", true));
     }},
    {"kda",
     [](JsonFields* fields, MixerSpec* mixer) {
       KimiDeltaSpec& spec = *mixer->mutable_kimi_delta();
       ReadLayer(1, fields, &spec);
       if (fields->Find("lower_bound") != nullptr) spec.set_decay_lower_bound(fields->Number("lower_bound", -1));
     }},
};

// A stack of this one layer, so that it is checked as all specs are.
StackSpec ReadStack(JsonFields* fields) {
  StackSpec stack;
  stack.set_vocab_size(1);
  stack.set_mlp_expansion(32);
  stack.set_width(Required("hidden_size", fields));
  stack.add_layers("layer");
  MixerSpec& mixer = *stack.add_mixers();
  mixer.set_name("layer");
  const std::string kind = fields->Text("layer", "");
  for (const LayerReader& reader : kLayerReaders) {
    if (kind != reader.name) continue;
    reader.read(fields, &mixer);
    return stack;
  }
  fields->AddProblem("layer", "one of gated_deltanet, kda");
  return stack;
}

absl::Status CheckLayerWeights(const StackSpec& stack, const SafetensorsFile& weights) {
  std::vector<Parameter> parameters;
  const MixerSpec& mixer = stack.mixers(0);
  BuiltinMixerKinds().Of(mixer).append_parameters(mixer, {0, 1, stack.width()}, "", &parameters);
  std::set<std::string> known;
  std::vector<std::string> problems;
  for (const Parameter& parameter : parameters) {
    known.insert(parameter.name);
    const TensorView* const tensor = weights.Find(parameter.name);
    if (tensor == nullptr || tensor->shape != parameter.shape) {
      problems.push_back(absl::StrCat(parameter.name, ": ",
                                      tensor == nullptr ? "missing" : "has shape " + ToString(tensor->shape),
                                      ", expected shape ", ToString(parameter.shape)));
    }
  }
  for (const std::string& name : weights.Names()) {
    if (known.count(name) == 0) problems.push_back(name + ": unexpected");
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(weights.Description(), ": ", absl::StrJoin(problems, "; ")));
}

}  // namespace

bool IsLayerFolder(const std::string& folder) {
  const absl::StatusOr<std::string> text = ReadFile(folder + "/config.json");
  if (!text.ok()) return false;
  const absl::StatusOr<nlohmann::json> config = ParseJsonObject(*text, folder);
  return config.ok() && config->contains("layer");
}

absl::StatusOr<GoldenLayer> OpenGoldenLayer(const std::string& folder, WeightType type) {
  const std::string config_path = folder + "/config.json";
  ASSIGN_OR_RETURN(const std::string text, ReadFile(config_path));
  ASSIGN_OR_RETURN(const nlohmann::json config, ParseJsonObject(text, config_path));
  JsonFields fields(config);
  const StackSpec stack = ReadStack(&fields);
  RETURN_IF_ERROR(fields.Check(config_path));
  if (const absl::Status status = ValidateStack(stack); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(config_path, ": ", status.message()));
  }

  GoldenLayer layer;
  layer.width = stack.width();
  ASSIGN_OR_RETURN(layer.weights, SafetensorsFile::Open(folder + "/weights.safetensors"));
  RETURN_IF_ERROR(CheckLayerWeights(stack, *layer.weights));
  const LayerWeights weights(*layer.weights, "", type);
  const MixerSpec& mixer = stack.mixers(0);
  layer.mixer = NewMixer(mixer, stack, weights, ModelOptions());
  return layer;
}

}  // namespace kvm
