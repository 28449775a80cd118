#include "kvm/io/huggingface/huggingface.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/huggingface/config_keys.h"
#include "kvm/io/huggingface/mixer_config.h"
#include "kvm/io/json/json_fields.h"
#include "kvm/model/stack/stack_limits.h"
#include "kvm/model/stack/stack_problems.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {
namespace {

constexpr char kMain[] = "main";
constexpr char kAlt[] = "alt";

// The mixer that `key` names. `rope` is the prefix of the rotary keys of its layers.
MixerSpec ReadMixer(const std::string& name, const std::string& key, const std::string& default_kind,
                    const std::string& rope, JsonFields* fields) {
  MixerSpec mixer;
  mixer.set_name(name);
  const std::string kind = fields->Text(key, default_kind);
  std::vector<std::string> known;
  for (const MixerConfig& config : MixerConfigs()) {
    if (kind == config.name) {
      config.read(rope, fields, &mixer);
      return mixer;
    }
    known.push_back(config.name);
  }
  fields->AddProblem(key, absl::StrCat("one of ", absl::StrJoin(known, ", ")));
  return mixer;
}

// Fields of StackSpec, or the ends of their paths, and the keys of config.json that they come from, where names differ.
constexpr std::pair<absl::string_view, absl::string_view> kConfigKeys[] = {
    {"gated_delta_net.qk_head_dim", "gated_deltanet_expand_k"},
    {"gated_delta_net.v_head_dim", "gated_deltanet_expand_v"},
    {"gated_delta_net.convolution.size", "gated_deltanet_conv_size"},
    {"kimi_delta.qk_head_dim", "kda_expand_k"},
    {"kimi_delta.v_head_dim", "kda_expand_v"},
    {"kimi_delta.convolution.size", "kda_conv_size"},
    {"width", "hidden_size"},
    {"mlp_expansion", "ffn_expansion"},
    {"skip_connections", "use_skip_connections"},
    {"layers", "num_hidden_layers"},
    {"num_heads", "num_attention_heads"},
    {"num_kv_heads", "num_key_value_heads"},
    {"qk_head_dim", "d_qk_head"},
    {"v_head_dim", "d_v_head"},
    {"rotary_dim", "rope_partial_dim"},
    {"rotary_theta", "rope_theta"},
    {"window", "swa_window_size"},
    {"window_chunks", "n_bswa_chunks"},
    {"num_sinks", "sink_len"},
    {"factor", "state_growth_factor"},
    {"exponent", "state_growth_exponent"},
    {"limit", "state_saturation_n"},
    {"round_down", "state_round_down"},
    {"min_rows", "state_min_len"},
    {"max_chunks", "n_max_d_chunks"},
    {"value_anchor", "alt_share_v0"},
    {"ovq.chunk_len", "ovq_chunk_size"},
    {"max_centroids", "ovq_max_centroids"},
};

// The key of config.json that a field of the spec came from.
std::string KeyOf(const StackSpec& spec, const std::string& path) {
  const std::string whole = path.substr(0, path.find(' '));  // "qk_head_dim times num_heads"
  std::string key = whole.substr(whole.rfind('.') + 1);
  for (const auto& [field, config_key] : kConfigKeys) {
    if (whole == field || absl::EndsWith(whole, absl::StrCat(".", field))) {
      key = std::string(config_key);
      break;
    }
  }
  for (int i = 0; i < spec.mixers_size(); ++i) {
    const bool is_alt = spec.mixers(i).name() == kAlt && absl::StartsWith(path, absl::StrCat("mixers[", i, "]"));
    if (is_alt && absl::StartsWith(key, "rope_")) return "alt_" + key;
  }
  return key;
}

StackSpec ReadStack(JsonFields* fields) {
  StackSpec spec;
  spec.set_vocab_size(fields->Whole("vocab_size", 50304));
  spec.set_width(fields->Whole("hidden_size", 768));
  spec.set_mlp_expansion(fields->Number("ffn_expansion", 4));
  spec.set_mlp_token_shift(fields->Flag("use_tokenshift_ffn", false));
  spec.set_block_lambdas(fields->Flag("use_block_lambdas", false));
  spec.set_skip_connections(fields->Flag("use_skip_connections", false));
  const double residual_scale = fields->Number("residual_scale", 1);
  spec.set_residual_scale(residual_scale == 0 ? 1 : residual_scale);
  spec.set_logit_softcap(fields->Number("logit_softcap", 0));
  spec.set_tied_head(fields->Flag("tie_word_embeddings", false));
  const std::string table = fields->Text("rope_table_dtype", "bfloat16");
  spec.set_rotary_table(table == "float32" ? StackSpec::FLOAT32 : StackSpec::BFLOAT16);
  if (table != "float32" && table != "bfloat16") fields->AddProblem("rope_table_dtype", "float32 or bfloat16");

  int32_t num_layers = fields->Whole("num_hidden_layers", 12);
  if (num_layers < 1 || num_layers > kMaxLayers) {
    fields->AddProblem("num_hidden_layers", absl::StrCat("a whole number from 1 to ", kMaxLayers));
    num_layers = 2;
  }
  const int32_t alt_every = fields->Whole("alt_layer_every", -1);
  for (int32_t i = 0; i < num_layers; ++i) spec.add_layers(alt_every > 1 && i % alt_every == 0 ? kAlt : kMain);
  const bool has_main = std::count(spec.layers().begin(), spec.layers().end(), kMain) > 0;
  const bool has_alt = std::count(spec.layers().begin(), spec.layers().end(), kAlt) > 0;
  if (has_main) {
    *spec.add_mixers() = ReadMixer(kMain, "token_mixer", "rwkv7", "", fields);
    if (has_alt && fields->Flag("alt_share_v0", false)) spec.mutable_mixers(0)->set_value_anchor(kAlt);
  }
  if (has_alt) *spec.add_mixers() = ReadMixer(kAlt, "alt_token_mixer", "swa", "alt_", fields);
  return spec;
}

}  // namespace

absl::StatusOr<HuggingFaceConfig> ParseHuggingFaceConfig(absl::string_view json, const std::string& source) {
  ASSIGN_OR_RETURN(const nlohmann::json object, ParseJsonObject(json, source));
  JsonFields fields(object);
  const bool is_ours = fields.Text("model_type", "") == "rwkv7backbone";
  if (!is_ours) fields.AddProblem("model_type", "\"rwkv7backbone\"");
  HuggingFaceConfig config;
  config.spec = ReadStack(&fields);
  const std::vector<StackProblem> problems = FindStackProblems(config.spec);
  for (const StackProblem& problem : problems) {
    // A mixer without kind is one whose name was refused.
    if (absl::EndsWith(problem.path, "]")) continue;
    fields.AddProblem(KeyOf(config.spec, problem.path), problem.got, problem.expected);
  }
  // Other models' keys mean what they mean there.
  if (is_ours) CheckConfigKeys(object, problems.empty() ? &config.spec : nullptr, &fields);
  RETURN_IF_ERROR(fields.Check(source));
  for (const auto& [key, value] : object.items()) {
    config.fields[key] = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  config.unused = UnusedConfigKeys(object);
  config.notes = NotesOnUnknownKeys(object);
  return config;
}

void AdoptRanks(const WeightSource& weights, StackSpec* spec, const MixerKinds& kinds) {
  for (int layer = spec->layers_size() - 1; layer >= 0; --layer) {
    MixerSpec& mixer = *spec->mutable_mixers(MixerIndex(*spec, layer));
    const MixerKind& kind = kinds.Of(mixer);
    if (kind.adopt_sizes == nullptr) continue;
    const auto shape_of = [&](absl::string_view name) -> std::optional<Shape> {
      const TensorView* tensor = weights.Find(absl::StrCat("transformer.h.", layer, ".attn.", name));
      return tensor == nullptr ? std::nullopt : std::optional<Shape>(tensor->shape);
    };
    kind.adopt_sizes(shape_of, &mixer);
  }
}

}  // namespace kvm
