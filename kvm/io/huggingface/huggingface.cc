#include "kvm/io/huggingface/huggingface.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/huggingface/config_keys.h"
#include "kvm/io/huggingface/config_rope.h"
#include "kvm/io/huggingface/delta_net_config.h"
#include "kvm/io/json/json_fields.h"
#include "kvm/model/stack/stack_problems.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {
namespace {

constexpr char kMain[] = "main";
constexpr char kAlt[] = "alt";
constexpr int kMaxLayers = 4096;

ProjectionSpec::ValueResidual ReadValueResidual(const std::string& kind, JsonFields* fields) {
  if (!fields->Flag("use_value_residual", true)) return ProjectionSpec::NONE;
  const std::string key = kind + "_value_residual_mode";
  const std::string mode = fields->Text(key, "rwkv");
  if (mode == "linear") return ProjectionSpec::LINEAR;
  if (mode == "rwkv_post_tokenshift") return ProjectionSpec::RWKV_POST_TOKEN_SHIFT;
  if (mode != "rwkv") fields->AddProblem(key, "one of rwkv, linear, rwkv_post_tokenshift");
  return ProjectionSpec::RWKV;
}

bool ReadTokenShift(const std::string& kind, JsonFields* fields) {
  const std::string key = kind + "_token_shift_mode";
  const std::string mode = fields->Text(key, "rwkv");
  if (mode != "rwkv" && mode != "none") fields->AddProblem(key, "one of rwkv, none");
  return fields->Flag("use_tokenshift_att", false) && mode == "rwkv";
}

// A size that may be absent; 0 and negative ones are problems.
std::optional<int32_t> ReadSize(const std::string& key, JsonFields* fields) {
  const std::optional<int32_t> size = fields->OptionalWhole(key);
  if (!size.has_value() || *size >= 1) return size;
  fields->AddProblem(key, "a positive number or null");
  return std::nullopt;
}

// `kind` is the prefix of the mixer's own keys, `rope` that of the rotary keys.
ProjectionSpec ReadProjections(const std::string& kind, const std::string& rope, JsonFields* fields) {
  ProjectionSpec spec;
  spec.set_num_heads(fields->Whole("num_attention_heads", 6));
  const std::optional<int32_t> kv_heads = ReadSize("num_key_value_heads", fields);
  if (kv_heads.has_value()) spec.set_num_kv_heads(*kv_heads);
  const std::optional<int32_t> head_dim = ReadSize("d_head", fields);
  std::optional<int32_t> qk_dim = ReadSize("d_qk_head", fields);
  std::optional<int32_t> v_dim = ReadSize("d_v_head", fields);
  if (!qk_dim.has_value()) qk_dim = head_dim;
  if (!v_dim.has_value()) v_dim = head_dim;
  if (qk_dim.has_value()) spec.set_qk_head_dim(*qk_dim);
  if (v_dim.has_value()) spec.set_v_head_dim(*v_dim);
  spec.set_rotary_dim(fields->Whole(rope + "rope_partial_dim", 64));
  constexpr double kTheta = 1e4;
  spec.set_rotary_theta(rope.empty() ? ReadRopeTheta(kTheta, fields) : fields->Number(rope + "rope_theta", kTheta));
  spec.set_token_shift(ReadTokenShift(kind, fields));
  spec.set_value_residual(ReadValueResidual(kind, fields));
  return spec;
}

BudgetSpec ReadBudget(JsonFields* fields) {
  BudgetSpec spec;
  spec.set_min_rows(fields->Whole("state_min_len", -1));
  spec.set_max_chunks(fields->Whole("n_max_d_chunks", 1));
  const std::string mode = fields->Text("state_budget_mode", "fixed");
  if (mode == "fixed") return spec;
  spec.set_round_down(fields->Whole("state_round_down", 1));
  if (mode == "power_law") {
    spec.set_growth(BudgetSpec::POWER_LAW);
    spec.set_factor(fields->Number("state_growth_factor", 1));
    spec.set_exponent(fields->Number("state_growth_exponent", 0.5));
  } else if (mode == "kvm_saturation") {
    spec.set_growth(BudgetSpec::SATURATION);
    spec.set_limit(fields->Number("state_saturation_n", 0));
  } else {
    fields->AddProblem("state_budget_mode", "one of fixed, power_law, kvm_saturation");
  }
  return spec;
}

KvmSpec ReadKvm(const std::string& rope, JsonFields* fields) {
  KvmSpec spec;
  *spec.mutable_projections() = ReadProjections("kvm", rope, fields);
  spec.set_chunk_len(fields->Whole("chunk_len", 256));
  spec.set_window_chunks(fields->Whole("n_bswa_chunks", 2));
  spec.set_num_sinks(fields->Whole("sink_len", 1));
  *spec.mutable_budget() = ReadBudget(fields);
  spec.set_gate_keys(fields->Flag("kvm_use_merge_gate_keys", true));
  spec.set_gate_values(fields->Flag("kvm_use_merge_gate_values", true));
  spec.set_gate_initial_rows(fields->Flag("kvm_apply_merge_gate_to_initial_state", false));
  spec.set_gate_appended_rows(fields->Flag("kvm_apply_merge_gate_to_appends", false));
  spec.set_head_temperatures(fields->Flag("kvm_use_head_temps", true));
  spec.set_use_radius(fields->Flag("kvm_use_vlens", true));
  return spec;
}

BlockWindowSpec ReadBlockWindow(const std::string& rope, JsonFields* fields) {
  BlockWindowSpec spec;
  *spec.mutable_projections() = ReadProjections("gptalpha", rope, fields);
  spec.set_chunk_len(fields->Whole("chunk_len", 256));
  spec.set_window_chunks(fields->Whole("n_bswa_chunks", 2));
  spec.set_num_sinks(fields->Whole("sink_len", 1));
  return spec;
}

OvqSpec ReadOvq(const std::string& rope, JsonFields* fields) {
  OvqSpec spec;
  *spec.mutable_projections() = ReadProjections("ovq", rope, fields);
  spec.set_chunk_len(fields->Whole("ovq_chunk_size", 128));
  spec.set_max_centroids(fields->Whole("ovq_max_centroids", 2048));
  spec.set_grow_linearly(fields->Flag("ovq_use_min_state_size", false));
  spec.set_counts_for_rate_only(fields->Flag("ovq_use_counts_for_lr_only", false));
  spec.set_delta_rule(fields->Flag("ovq_use_delta_rule", false));
  spec.set_normalize_centroids(fields->Flag("ovq_normalize_centroids", false));
  return spec;
}

// The mixer that `key` names. `rope` is the prefix of the rotary keys of its layers.
MixerSpec ReadMixer(const std::string& name, const std::string& key, const std::string& default_kind,
                    const std::string& rope, JsonFields* fields) {
  MixerSpec mixer;
  mixer.set_name(name);
  const std::string kind = fields->Text(key, default_kind);
  if (kind == "gptalpha") {
    *mixer.mutable_attention()->mutable_projections() = ReadProjections(kind, rope, fields);
  } else if (kind == "swa") {
    AttentionSpec& spec = *mixer.mutable_attention();
    *spec.mutable_projections() = ReadProjections(kind, rope, fields);
    const int32_t window = fields->Whole("swa_window_size", -1);
    spec.set_window(window > 0 ? window : fields->Whole("chunk_len", 256));
    if (spec.window() < 1) fields->AddProblem("chunk_len", "a positive number, as it is the window of swa");
  } else if (kind == "kvm") {
    *mixer.mutable_kvm() = ReadKvm(rope, fields);
  } else if (kind == "rwkv7") {
    mixer.mutable_rwkv7()->set_num_heads(fields->Whole("num_attention_heads", 6));
    mixer.mutable_rwkv7()->set_token_shift(fields->Flag("use_tokenshift_att", false));
  } else if (kind == "gptalpha_bswa") {
    *mixer.mutable_block_window() = ReadBlockWindow(rope, fields);
  } else if (kind == "ovq") {
    *mixer.mutable_ovq() = ReadOvq(rope, fields);
  } else if (kind == "gated_deltanet") {
    *mixer.mutable_gated_delta_net() = ReadGatedDeltaNet(fields);
  } else if (kind == "kda") {
    *mixer.mutable_kimi_delta() = ReadKimiDelta(fields);
  } else {
    fields->AddProblem(key, "one of gptalpha, gptalpha_bswa, swa, kvm, ovq, rwkv7, gated_deltanet, kda");
  }
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

// The first extent of a matrix [rank, D]; 0 when there is no such matrix.
int32_t RankOf(const WeightSource& weights, const std::string& name) {
  const TensorView* tensor = weights.Find(name);
  constexpr int64_t kMaxRank = int64_t{1} << 24;
  if (tensor == nullptr || tensor->shape.size() != 2 || tensor->shape[0] > kMaxRank) return 0;
  return static_cast<int32_t>(tensor->shape[0]);
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

void AdoptRanks(const WeightSource& weights, StackSpec* spec) {
  for (int layer = spec->layers_size() - 1; layer >= 0; --layer) {
    MixerSpec& mixer = *spec->mutable_mixers(MixerIndex(*spec, layer));
    const std::string prefix = absl::StrCat("transformer.h.", layer, ".attn.");
    const auto rank = [&](const char* name) { return RankOf(weights, absl::StrCat(prefix, name, ".weight")); };
    if (mixer.has_rwkv7()) {
      Rwkv7Spec& rwkv7 = *mixer.mutable_rwkv7();
      if (rank("w1") > 0) rwkv7.set_decay_rank(rank("w1"));
      if (rank("a1") > 0) rwkv7.set_in_context_rate_rank(rank("a1"));
      if (rank("v1") > 0) rwkv7.set_value_rank(rank("v1"));
      if (rank("g1") > 0) rwkv7.set_gate_rank(rank("g1"));
    } else if (HasProjections(mixer) && rank("v_gate1") > 0) {
      MutableProjections(&mixer)->set_value_gate_rank(rank("v_gate1"));
    }
  }
}

}  // namespace kvm
