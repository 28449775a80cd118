#include "kvm/io/huggingface/mixer_config.h"

#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "kvm/io/huggingface/config_rope.h"
#include "kvm/io/huggingface/delta_net_config.h"
#include "kvm/model/stack/delta_net_spec.h"
#include "kvm/model/stack/mixer_sizes.h"

namespace kvm {
namespace {

// Reading.

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

void ReadAttention(const std::string& rope, JsonFields* fields, MixerSpec* mixer) {
  *mixer->mutable_attention()->mutable_projections() = ReadProjections("gptalpha", rope, fields);
}

void ReadSlidingWindow(const std::string& rope, JsonFields* fields, MixerSpec* mixer) {
  AttentionSpec& spec = *mixer->mutable_attention();
  *spec.mutable_projections() = ReadProjections("swa", rope, fields);
  const int32_t window = fields->Whole("swa_window_size", -1);
  spec.set_window(window > 0 ? window : fields->Whole("chunk_len", 256));
  if (spec.window() < 1) fields->AddProblem("chunk_len", "a positive number, as it is the window of swa");
}

void ReadRwkv7(const std::string&, JsonFields* fields, MixerSpec* mixer) {
  mixer->mutable_rwkv7()->set_num_heads(fields->Whole("num_attention_heads", 6));
  mixer->mutable_rwkv7()->set_token_shift(fields->Flag("use_tokenshift_att", false));
}

// Writing.

void SetProjections(const ProjectionSpec& spec, const MixerSpec& mixer, const std::string& kind,
                    const std::string& rope, int64_t width, ConfigSettings* settings) {
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
  settings->Set("use_value_residual", spec.value_residual() != ProjectionSpec::NONE, who);
  if (spec.value_residual() != ProjectionSpec::NONE) {
    const char* mode = spec.value_residual() == ProjectionSpec::RWKV     ? "rwkv"
                       : spec.value_residual() == ProjectionSpec::LINEAR ? "linear"
                                                                         : "rwkv_post_tokenshift";
    settings->Set(kind + "_value_residual_mode", mode, who);
  }
}

void SetBudget(const BudgetSpec& spec, const std::string& who, ConfigSettings* settings) {
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

void SetKvm(const MixerSpec& mixer, const std::string& rope, int64_t width, ConfigSettings* settings) {
  const KvmSpec& spec = mixer.kvm();
  const std::string who = Who(mixer);
  SetProjections(spec.projections(), mixer, "kvm", rope, width, settings);
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

void SetOvq(const MixerSpec& mixer, const std::string& rope, int64_t width, ConfigSettings* settings) {
  const OvqSpec& spec = mixer.ovq();
  const std::string who = Who(mixer);
  SetProjections(spec.projections(), mixer, "ovq", rope, width, settings);
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
                 ConfigSettings* settings) {
  const std::string who = Who(mixer);
  const DeltaNetSpec sizes = ResolveDeltaNet(spec, width);
  settings->Set("num_attention_heads", sizes.num_heads, who);
  settings->Set(prefix + "expand_k", Expansion(sizes.qk_dim, sizes.num_heads, width), who);
  settings->Set(prefix + "expand_v", Expansion(sizes.v_dim, sizes.num_heads, width), who);
  settings->Set(prefix + "conv_size", spec.convolution().size(), who);
  settings->Set(prefix + "conv_bias", spec.convolution().bias(), who);
  settings->Set(prefix + "allow_neg_eigval", spec.allow_negative_eigenvalues(), who);
}

void SetAttention(const MixerSpec& mixer, const std::string& rope, int64_t width, ConfigSettings* settings) {
  SetProjections(mixer.attention().projections(), mixer, "gptalpha", rope, width, settings);
}

void SetSlidingWindow(const MixerSpec& mixer, const std::string& rope, int64_t width, ConfigSettings* settings) {
  SetProjections(mixer.attention().projections(), mixer, "swa", rope, width, settings);
  settings->Set("swa_window_size", mixer.attention().window(), Who(mixer));
}

void SetRwkv7(const MixerSpec& mixer, const std::string&, int64_t, ConfigSettings* settings) {
  settings->Set("num_attention_heads", mixer.rwkv7().num_heads(), Who(mixer));
  settings->Set("use_tokenshift_att", mixer.rwkv7().token_shift(), Who(mixer));
}

void SetBlockWindow(const MixerSpec& mixer, const std::string& rope, int64_t width, ConfigSettings* settings) {
  const BlockWindowSpec& spec = mixer.block_window();
  SetProjections(spec.projections(), mixer, "gptalpha", rope, width, settings);
  settings->Set("chunk_len", spec.chunk_len(), Who(mixer));
  settings->Set("n_bswa_chunks", spec.window_chunks(), Who(mixer));
  settings->Set("sink_len", spec.num_sinks(), Who(mixer));
}

constexpr MixerConfig kConfigs[] = {
    {"gptalpha", [](const MixerSpec& mixer) { return mixer.has_attention() && !mixer.attention().has_window(); },
     ReadAttention, SetAttention},
    {"gptalpha_bswa", [](const MixerSpec& mixer) { return mixer.has_block_window(); },
     [](const std::string& rope, JsonFields* fields, MixerSpec* mixer) {
       *mixer->mutable_block_window() = ReadBlockWindow(rope, fields);
     },
     SetBlockWindow},
    {"swa", [](const MixerSpec& mixer) { return mixer.has_attention() && mixer.attention().has_window(); },
     ReadSlidingWindow, SetSlidingWindow},
    {"kvm", [](const MixerSpec& mixer) { return mixer.has_kvm(); },
     [](const std::string& rope, JsonFields* fields, MixerSpec* mixer) {
       *mixer->mutable_kvm() = ReadKvm(rope, fields);
     },
     SetKvm},
    {"ovq", [](const MixerSpec& mixer) { return mixer.has_ovq(); },
     [](const std::string& rope, JsonFields* fields, MixerSpec* mixer) {
       *mixer->mutable_ovq() = ReadOvq(rope, fields);
     },
     SetOvq},
    {"rwkv7", [](const MixerSpec& mixer) { return mixer.has_rwkv7(); }, ReadRwkv7, SetRwkv7},
    {"gated_deltanet", [](const MixerSpec& mixer) { return mixer.has_gated_delta_net(); },
     [](const std::string&, JsonFields* fields, MixerSpec* mixer) {
       *mixer->mutable_gated_delta_net() = ReadGatedDeltaNet(fields);
     },
     [](const MixerSpec& mixer, const std::string&, int64_t width, ConfigSettings* settings) {
       SetDeltaNet(mixer.gated_delta_net(), mixer, "gated_deltanet_", width, settings);
     }},
    {"kda", [](const MixerSpec& mixer) { return mixer.has_kimi_delta(); },
     [](const std::string&, JsonFields* fields, MixerSpec* mixer) {
       *mixer->mutable_kimi_delta() = ReadKimiDelta(fields);
     },
     [](const MixerSpec& mixer, const std::string&, int64_t width, ConfigSettings* settings) {
       SetDeltaNet(mixer.kimi_delta(), mixer, "kda_", width, settings);
     }},
};

}  // namespace

absl::Span<const MixerConfig> MixerConfigs() { return kConfigs; }

const MixerConfig* FindMixerConfig(const MixerSpec& mixer) {
  for (const MixerConfig& config : kConfigs) {
    if (config.is(mixer)) return &config;
  }
  return nullptr;
}

std::string Who(const MixerSpec& mixer) { return absl::StrCat("mixer ", mixer.name()); }

}  // namespace kvm
