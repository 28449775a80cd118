#include "kvm/io/huggingface/huggingface_writer.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/huggingface/config_keys.h"
#include "kvm/io/huggingface/config_settings.h"
#include "kvm/io/huggingface/huggingface.h"
#include "kvm/io/huggingface/main_and_alt.h"
#include "kvm/io/huggingface/mixer_config.h"
#include "kvm/io/json/json_fields.h"
#include "kvm/io/json/strict_json.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {
namespace {

using Json = nlohmann::json;

void SetMixer(const MixerSpec& mixer, const std::string& key, const std::string& rope, int64_t width,
              ConfigSettings* settings) {
  const MixerConfig& config = *FindMixerConfig(mixer);
  settings->Set(key, config.name, Who(mixer));
  config.write(mixer, rope, width, settings);
}

// The mixer that `mixer` takes its value anchor from.
const std::string& AnchorOf(const MixerSpec& mixer) {
  return mixer.has_value_anchor() ? mixer.value_anchor() : mixer.name();
}

absl::StatusOr<Json> SettingsOf(const StackSpec& spec) {
  ASSIGN_OR_RETURN(const MainAndAlt roles, FindMainAndAlt(spec));
  ConfigSettings settings;
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
  for (const MixerSpec& mixer : spec.mixers()) {
    if (FindMixerConfig(mixer) != nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("config.json cannot express this stack: ", Who(mixer), " is of a kind that it does not know"));
  }
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
