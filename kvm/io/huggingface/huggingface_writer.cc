#include "kvm/io/huggingface/huggingface_writer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/huggingface/config_keys.h"
#include "kvm/io/huggingface/huggingface.h"
#include "kvm/io/huggingface/main_and_alt.h"
#include "kvm/io/json/json_fields.h"
#include "kvm/io/json/strict_json.h"
#include "kvm/model/stack/delta_net_spec.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {
namespace {

using Json = nlohmann::json;

// The settings of a config.json and who asked for them. Two mixers that want different values for one key are a
// problem.
class Settings {
 public:
  void Set(const std::string& key, Json value, const std::string& who) {
    const auto [place, is_new] = owners_.emplace(key, who);
    if (is_new) {
      values_[key] = std::move(value);
    } else if (values_[key] != value) {
      problems_.push_back(absl::StrCat(key, " is one for all layers: ", place->second, " needs ",
                                       ShortJson(values_[key]), ", ", who, " ", ShortJson(value)));
    }
  }
  void AddProblem(std::string problem) { problems_.push_back(std::move(problem)); }

  const Json& values() const { return values_; }
  absl::Status Check() const {
    if (problems_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("config.json cannot express this stack: ", absl::StrJoin(problems_, "; ")));
  }

 private:
  Json values_ = Json::object();
  std::map<std::string, std::string> owners_;
  std::vector<std::string> problems_;
};

// What asked for a setting, in words.
std::string Who(const MixerSpec& mixer) { return absl::StrCat("mixer ", mixer.name()); }

void SetProjections(const MixerSpec& mixer, const std::string& kind, const std::string& rope, int64_t width,
                    Settings* settings) {
  const ProjectionSpec& spec = Projections(mixer);
  const std::string who = Who(mixer);
  const HeadSizes heads = ResolveHeads(spec, width);
  settings->Set("num_attention_heads", heads.num_heads, who);
  settings->Set("num_key_value_heads", heads.num_kv_heads, who);
  settings->Set("d_qk_head", heads.qk_dim, who);
  settings->Set("d_v_head", heads.v_dim, who);
  settings->Set(rope + "rope_partial_dim", spec.rotary_dim(), who);
  settings->Set(rope + "rope_theta", spec.rotary_theta(), who);
  settings->Set(kind + "_token_shift_mode", spec.token_shift() ? "rwkv" : "none", who);
  if (spec.token_shift()) settings->Set("use_tokenshift_att", true, who);
  settings->Set("use_value_residual", spec.value_residual() != NONE, who);
  if (spec.value_residual() != ProjectionSpec::NONE) {
    const char* mode = spec.value_residual() == ProjectionSpec::RWKV     ? "rwkv"
                       : spec.value_residual() == ProjectionSpec::LINEAR ? "linear"
                                                         : "rwkv_post_tokenshift";
    settings->Set(kind + "_value_residual_mode", mode, who);
  }
}

void SetBudget(const BudgetSpec& spec, const std::string& who, Settings* settings) {
  settings->Set("state_min_len", spec.min_rows(), who);
  settings->Set("n_max_d_chunks", spec.max_chunks(), who);
  if (spec.growth() != BudgetSpec::FIXED) settings->Set("state_round_down", spec.round_down(), who);
  switch (spec.growth()) {
    case BudgetSpec::FIXED:
      settings->Set("state_budget_mode", "fixed", who);
      break;
    case BudgetSpec::POWER_LAW:
      settings->Set("state_budget_mode", "power_law", who);
      settings->Set("state_growth_factor", spec.factor(), who);
      settings->Set("state_growth_exponent", spec.exponent(), who);
      break;
    case BudgetSpec::SATURATION:
      settings->Set("state_budget_mode", "kvm_saturation", who);
      settings->Set("state_saturation_n", spec.limit(), who);
      break;
  }
}

void SetKvm(const MixerSpec& mixer, const std::string& rope, int64_t width, Settings* settings) {
  const KvmSpec& spec = mixer.kvm();
  const std::string who = Who(mixer);
  SetProjections(mixer, "kvm", rope, width, settings);
  settings->Set("chunk_len", spec.chunk_len(), who);
  settings->Set("n_bswa_chunks", spec.window_chunks(), who);
  settings->Set("sink_len", spec.num_sinks(), who);
  SetBudget(spec.budget(), who, settings);
  settings->Set("kvm_use_merge_gate_keys", spec.gate_keys(), who);
  settings->Set("kvm_use_merge_gate_values", spec.gate_values(), who);
  settings->Set("kvm_apply_merge_gate_to_initial_state", spec.gate_initial_rows(), who);
  settings->Set("kvm_apply_merge_gate_to_appends", spec.gate_appended_rows(), who);
  settings->Set("kvm_use_head_temps", spec.head_temperatures(), who);
  settings->Set("kvm_use_vlens", spec.use_radius(), who);
}

void SetOvq(const MixerSpec& mixer, const std::string& rope, int64_t width, Settings* settings) {
  const OvqSpec& spec = mixer.ovq();
  const std::string who = Who(mixer);
  SetProjections(mixer, "ovq", rope, width, settings);
  settings->Set("ovq_chunk_size", spec.chunk_len(), who);
  settings->Set("ovq_max_centroids", spec.max_centroids(), who);
  settings->Set("ovq_use_min_state_size", spec.grow_linearly(), who);
  settings->Set("ovq_use_counts_for_lr_only", spec.counts_for_rate_only(), who);
  settings->Set("ovq_use_delta_rule", spec.delta_rule(), who);
  settings->Set("ovq_normalize_centroids", spec.normalize_centroids(), who);
}

// The ratio that is read back as `head_dim`: floor(width·ratio/heads).
double Expansion(int64_t head_dim, int64_t heads, int64_t width) {
  const double ratio = static_cast<double>(head_dim * heads) / static_cast<double>(width);
  const bool falls_short = static_cast<int64_t>(width * ratio / heads) < head_dim;
  return falls_short ? std::nextafter(ratio, ratio + 1) : ratio;
}

// Spec: GatedDeltaNetSpec or KimiDeltaSpec, whose common fields have the same names.
template <typename Spec>
void SetDeltaNet(const Spec& spec, const MixerSpec& mixer, const std::string& prefix, int64_t width,
                 Settings* settings) {
  const std::string who = Who(mixer);
  const DeltaNetSpec sizes = ResolveDeltaNet(mixer, width);
  settings->Set("num_attention_heads", sizes.num_heads, who);
  settings->Set(prefix + "expand_k", Expansion(sizes.qk_dim, sizes.num_heads, width), who);
  settings->Set(prefix + "expand_v", Expansion(sizes.v_dim, sizes.num_heads, width), who);
  settings->Set(prefix + "conv_size", spec.convolution().size(), who);
  settings->Set(prefix + "conv_bias", spec.convolution().bias(), who);
  settings->Set(prefix + "allow_neg_eigval", spec.allow_negative_eigenvalues(), who);
}

void SetMixer(const MixerSpec& mixer, const std::string& key, const std::string& rope, int64_t width,
              Settings* settings) {
  const std::string who = Who(mixer);
  switch (mixer.kind_case()) {
    case MixerSpec::kAttention: {
      const std::string kind = mixer.attention().has_window() ? "swa" : "gptalpha";
      settings->Set(key, kind, who);
      SetProjections(mixer, kind, rope, width, settings);
      if (mixer.attention().has_window()) settings->Set("swa_window_size", mixer.attention().window(), who);
      return;
    }
    case MixerSpec::kKvm:
      settings->Set(key, "kvm", who);
      SetKvm(mixer, rope, width, settings);
      return;
    case MixerSpec::kRwkv7:
      settings->Set(key, "rwkv7", who);
      settings->Set("num_attention_heads", mixer.rwkv7().num_heads(), who);
      settings->Set("use_tokenshift_att", mixer.rwkv7().token_shift(), who);
      return;
    case MixerSpec::kBlockWindow:
      settings->Set(key, "gptalpha_bswa", who);
      SetProjections(mixer, "gptalpha", rope, width, settings);
      settings->Set("chunk_len", mixer.block_window().chunk_len(), who);
      settings->Set("n_bswa_chunks", mixer.block_window().window_chunks(), who);
      settings->Set("sink_len", mixer.block_window().num_sinks(), who);
      return;
    case MixerSpec::kOvq:
      settings->Set(key, "ovq", who);
      SetOvq(mixer, rope, width, settings);
      return;
    case MixerSpec::kGatedDeltaNet:
      settings->Set(key, "gated_deltanet", who);
      SetDeltaNet(mixer.gated_delta_net(), mixer, "gated_deltanet_", width, settings);
      return;
    case MixerSpec::kKimiDelta:
      settings->Set(key, "kda", who);
      SetDeltaNet(mixer.kimi_delta(), mixer, "kda_", width, settings);
      return;
    case MixerSpec::KIND_NOT_SET:
      return;  // not in a valid spec
  }
}

// The mixer that `mixer` takes its value anchor from.
const std::string& AnchorOf(const MixerSpec& mixer) {
  return mixer.has_value_anchor() ? mixer.value_anchor() : mixer.name();
}

absl::StatusOr<Json> SettingsOf(const StackSpec& spec) {
  ASSIGN_OR_RETURN(const MainAndAlt roles, FindMainAndAlt(spec));
  Settings settings;
  const std::string who = "the stack";
  settings.Set("vocab_size", spec.vocab_size(), who);
  settings.Set("hidden_size", spec.width(), who);
  settings.Set("ffn_expansion", spec.mlp_expansion(), who);
  settings.Set("use_tokenshift_ffn", spec.mlp_token_shift(), who);
  settings.Set("use_block_lambdas", spec.block_lambdas(), who);
  settings.Set("use_skip_connections", spec.skip_connections(), who);
  settings.Set("residual_scale", spec.residual_scale(), who);
  settings.Set("logit_softcap", spec.logit_softcap(), who);
  settings.Set("tie_word_embeddings", spec.tied_head(), who);
  settings.Set("rope_table_dtype", spec.rotary_table() == StackSpec::BFLOAT16 ? "bfloat16" : "float32", who);
  settings.Set("num_hidden_layers", spec.layers_size(), who);
  settings.Set("alt_layer_every", roles.alt_every, who);
  const MixerSpec& main = spec.mixers(roles.main);
  SetMixer(main, "token_mixer", "", spec.width(), &settings);
  bool shares_anchor = false;
  if (roles.alt >= 0) {
    const MixerSpec& alt = spec.mixers(roles.alt);
    SetMixer(alt, "alt_token_mixer", "alt_", spec.width(), &settings);
    shares_anchor = AnchorOf(main) == alt.name();
    if (HasValueResidual(alt) && AnchorOf(alt) != alt.name()) {
      settings.AddProblem(absl::StrCat(Who(alt), ", the alternative one, has the value anchor of ", AnchorOf(alt),
                                       "; only the main one can have another's"));
    }
  }
  settings.Set("alt_share_v0", shares_anchor, who);
  RETURN_IF_ERROR(settings.Check());
  return settings.values();
}

// Whether a config reads as `spec`; otherwise the first line of the stack in which they differ.
absl::Status CheckReadsAs(const Json& config, const StackSpec& spec) {
  ASSIGN_OR_RETURN(HuggingFaceConfig parsed, ParseHuggingFaceConfig(config.dump(), "config.json"));
  // There the flag speaks of files that lack a head.
  if (parsed.spec.tied_head() && !spec.tied_head()) parsed.spec.set_tied_head(false);
  ASSIGN_OR_RETURN(const std::string expected, MainAndAltText(spec));
  ASSIGN_OR_RETURN(const std::string got, MainAndAltText(parsed.spec));
  if (expected == got) return absl::OkStatus();
  const std::vector<std::string> expected_lines = absl::StrSplit(expected, '\n');
  const std::vector<std::string> got_lines = absl::StrSplit(got, '\n');
  const size_t count = std::min(expected_lines.size(), got_lines.size());
  size_t i = 0;
  while (i + 1 < count && expected_lines[i] == got_lines[i]) ++i;
  return absl::InvalidArgumentError(
      absl::StrCat("config.json cannot express this stack: it would read ", got_lines[i], " for ", expected_lines[i]));
}

std::string ToText(const Json& config) { return config.dump(2) + "\n"; }

}  // namespace

absl::StatusOr<std::string> FormatHuggingFaceConfig(const StackSpec& spec,
                                                    const std::map<std::string, std::string>& fields) {
  Json config = Json::object();
  for (const auto& [key, value] : fields) {
    ASSIGN_OR_RETURN(config[key], ParseStrictJson(value, absl::StrCat("config.json: ", key)));
  }
  // What the spec came from says it in its own words.
  if (!fields.empty() && CheckReadsAs(config, spec).ok()) return ToText(config);
  ASSIGN_OR_RETURN(const Json settings, SettingsOf(spec));
  config["model_type"] = "rwkv7backbone";
  if (!config.contains("architectures")) config["architectures"] = {"RWKV7BackboneForCausalLM"};
  for (auto field = config.begin(); field != config.end();) {
    field = IsRestatement(field.key()) ? config.erase(field) : std::next(field);
  }
  config.update(settings);
  RETURN_IF_ERROR(CheckReadsAs(config, spec));
  return ToText(config);
}

}  // namespace kvm
