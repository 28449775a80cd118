#include "kvm/io/huggingface/config_keys.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/nearest_name.h"
#include "kvm/io/huggingface/backbone_config_keys.h"
#include "kvm/io/huggingface/config_rope.h"
#include "kvm/io/huggingface/delta_net_config.h"

namespace kvm {
namespace {

using Json = nlohmann::json;

// Keys of attention-style mixers and of what is KVM's and OVQ's alone.
constexpr ConfigKey kMixerKeys[] = {
    {"alt_rope_partial_dim"},
    {"alt_rope_theta"},
    {"chunk_len"},
    {"d_head"},
    {"d_qk_head"},
    {"d_v_head"},
    {"gptalpha_token_shift_mode"},
    {"gptalpha_value_residual_mode"},
    {"kvm_aotriton_*", ConfigKeyUse::kNoEffect},
    {"kvm_apply_merge_gate_to_appends"},
    {"kvm_apply_merge_gate_to_initial_state"},
    {"kvm_token_shift_mode"},
    {"kvm_use_head_temps"},
    {"kvm_use_merge_gate_keys"},
    {"kvm_use_merge_gate_values"},
    {"kvm_use_vlens"},
    {"kvm_value_residual_mode"},
    {"lact_*", ConfigKeyUse::kNoEffect},  // of a mixer that no stack here has
    {"n_bswa_chunks"},
    {"n_max_d_chunks"},
    {"num_attention_heads"},
    {"num_key_value_heads"},
    {"ovq_chunk_size"},
    {"ovq_max_centroids"},
    {"ovq_normalize_centroids"},
    {"ovq_token_shift_mode"},
    {"ovq_use_counts_for_lr_only"},
    {"ovq_use_delta_rule"},
    {"ovq_use_min_state_size"},
    {"ovq_value_residual_mode"},
    {"ovq_window_size", ConfigKeyUse::kNoEffect},
    {"rope_parameters"},
    {"rope_partial_dim"},
    {"rope_scaling"},
    {"rope_table_dtype"},
    {"rope_theta"},
    {"sink_len"},
    {"state_budget_mode"},
    {"state_growth_exponent"},
    {"state_growth_factor"},
    {"state_min_len"},
    {"state_round_down"},
    {"state_saturation_n"},
    {"swa_token_shift_mode"},
    {"swa_value_residual_mode"},
    {"swa_window_size"},
    {"use_overflow_v_key_weighting", ConfigKeyUse::kNoEffect},
    {"use_state_decay", ConfigKeyUse::kNoEffect},
    {"use_state_deltarule", ConfigKeyUse::kNoEffect},
    {"use_tokenshift_att"},
    {"use_value_residual"},
};

// Everything that states keys.
const std::vector<absl::Span<const ConfigKey>>& Groups() {
  static const auto* const groups =
      new std::vector<absl::Span<const ConfigKey>>{BackboneConfigKeys(), kMixerKeys, DeltaNetConfigKeys()};
  return *groups;
}

bool Matches(const ConfigKey& key, absl::string_view name) {
  absl::string_view stem = key.name;
  return absl::ConsumeSuffix(&stem, "*") ? absl::StartsWith(name, stem) : stem == name;
}

void CheckFixed(const ConfigKey& key, const std::string& name, const Json& value, JsonFields* fields) {
  std::vector<std::string> allowed = {"null"};
  for (const Json& one : Json::parse(key.values)) {
    if (value == one) return;
    allowed.push_back(one.dump());
  }
  fields->AddProblem(name, absl::StrCat(absl::StrJoin(allowed, " or "), ": nothing else is supported"));
}

void CheckRestated(const ConfigKey& key, const std::string& name, const Json& value, const StackSpec& spec,
                   JsonFields* fields) {
  const std::optional<double> expected = key.restated(spec);
  if (!expected.has_value()) return fields->AddProblem(name, "null, as no layer of this stack has such a thing");
  constexpr double kTolerance = 1e-6;
  if (value.is_number() && std::abs(value.get<double>() - *expected) <= kTolerance * std::abs(*expected)) return;
  fields->AddProblem(name, absl::StrCat("null or ", *expected, ", which is what other keys ask for"));
}

}  // namespace

const ConfigKey* FindConfigKey(absl::string_view name) {
  for (const absl::Span<const ConfigKey> group : Groups()) {
    const auto found =
        std::find_if(group.begin(), group.end(), [&](const ConfigKey& key) { return Matches(key, name); });
    if (found != group.end()) return &*found;
  }
  return nullptr;
}

void CheckConfigKeys(const Json& config, const StackSpec* spec, JsonFields* fields) {
  // Windows are told of that are switched off.
  const bool no_windows = config.value("use_sliding_window", Json()) == false;
  for (const auto& [name, value] : config.items()) {
    const ConfigKey* const key = FindConfigKey(name);
    if (key == nullptr || value.is_null()) continue;
    if (key->use == ConfigKeyUse::kFixed) CheckFixed(*key, name, value, fields);
    const bool counts = spec != nullptr && !(no_windows && name == "sliding_window");
    if (key->use == ConfigKeyUse::kRestates && counts) CheckRestated(*key, name, value, *spec, fields);
  }
  CheckRope(spec, fields);
}

std::map<std::string, std::string> UnusedConfigKeys(const Json& config) {
  std::map<std::string, std::string> unused;
  for (const auto& [name, value] : config.items()) {
    const ConfigKey* const key = FindConfigKey(name);
    if (key != nullptr && key->use != ConfigKeyUse::kNoEffect) continue;
    unused[name] = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return unused;
}

std::vector<std::string> NotesOnUnknownKeys(const Json& config) {
  // Comparing long names with all that are known takes long, and many are no slips of the keyboard.
  constexpr size_t kLongestName = 64, kMostNames = 20;
  std::vector<std::string> known;
  for (const absl::Span<const ConfigKey> group : Groups()) {
    for (const ConfigKey& key : group) {
      if (key.use == ConfigKeyUse::kRead) known.emplace_back(key.name);
    }
  }
  std::vector<std::string> notes, strangers;
  size_t count = 0;
  for (const auto& [name, value] : config.items()) {
    if (FindConfigKey(name) != nullptr || ++count > kMostNames) continue;
    const std::string nearest = name.size() > kLongestName ? "" : DidYouMean(name, known, "");
    if (nearest.empty()) {
      strangers.push_back(Printable(name, kLongestName));
    } else {
      notes.push_back(absl::StrCat("config.json: nothing reads ", Printable(name), nearest));
    }
  }
  if (count > kMostNames) strangers.push_back(absl::StrCat(count - kMostNames, " more"));
  if (!strangers.empty()) notes.push_back(absl::StrCat("config.json: nothing reads ", absl::StrJoin(strangers, ", ")));
  return notes;
}

bool IsRestatement(absl::string_view name) {
  const ConfigKey* const key = FindConfigKey(name);
  return key != nullptr &&
         (key->use == ConfigKeyUse::kRestates || name == kRopeParametersKey || name == kRopeScalingKey);
}

}  // namespace kvm
