#include "kvm/io/huggingface/delta_net_config.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"

namespace kvm {
namespace {

constexpr ConfigKey kKeys[] = {
    {"gated_deltanet_allow_neg_eigval"},
    {"gated_deltanet_conv_bias"},
    {"gated_deltanet_conv_size"},
    {"gated_deltanet_expand_k"},
    {"gated_deltanet_expand_v"},
    {"gated_deltanet_mode", ConfigKeyUse::kNoEffect},
    {"gated_deltanet_norm_eps", ConfigKeyUse::kFixed, "[1e-5]"},
    {"gated_deltanet_num_kv_heads"},
    {"gated_deltanet_token_shift_mode"},
    {"gated_deltanet_use_gate", ConfigKeyUse::kFixed, "[true, 1]"},
    {"gated_deltanet_use_mamba_gate"},
    {"gated_deltanet_use_short_conv", ConfigKeyUse::kFixed, "[true, 1]"},
    {"gated_deltanet_value_residual_mode"},
    {"kda_allow_neg_eigval"},
    {"kda_conv_bias"},
    {"kda_conv_size"},
    {"kda_expand_k"},
    {"kda_expand_v"},
    {"kda_mode", ConfigKeyUse::kNoEffect},
    {"kda_norm_eps", ConfigKeyUse::kFixed, "[1e-5]"},
    {"kda_token_shift_mode"},
    {"kda_use_short_conv", ConfigKeyUse::kFixed, "[true, 1]"},
    {"kda_value_residual_mode"},
};

// int(width·expand/heads); 1 where there is no such size, which is then a problem.
int32_t HeadDim(const std::string& key, double default_expand, int32_t heads, JsonFields* fields) {
  constexpr double kMaxSize = 1 << 24;
  const double channels = fields->Whole("hidden_size", 768) * fields->Number(key, default_expand) / std::max(heads, 1);
  if (channels >= 1 && channels <= kMaxSize) return static_cast<int32_t>(channels);
  fields->AddProblem(key, absl::StrCat("a number that gives each of the ", heads, " heads 1 to ", kMaxSize,
                                       " channels (", channels, ")"));
  return 1;
}

void ExpectNone(const std::string& key, JsonFields* fields) {
  if (fields->Text(key, "none") != "none") fields->AddProblem(key, "none");
}

// The fields that both specs have, from keys that begin with `prefix`.
template <class Spec>
Spec ReadCommon(const std::string& prefix, double default_expand_k, double default_expand_v, JsonFields* fields) {
  Spec spec;
  const int32_t heads = fields->Whole("num_attention_heads", 6);
  spec.set_num_heads(heads);
  spec.set_qk_head_dim(HeadDim(prefix + "expand_k", default_expand_k, heads, fields));
  spec.set_v_head_dim(HeadDim(prefix + "expand_v", default_expand_v, heads, fields));
  spec.mutable_convolution()->set_size(fields->Whole(prefix + "conv_size", 4));
  spec.mutable_convolution()->set_bias(fields->Flag(prefix + "conv_bias", false));
  spec.set_allow_negative_eigenvalues(fields->Flag(prefix + "allow_neg_eigval", false));
  ExpectNone(prefix + "token_shift_mode", fields);
  ExpectNone(prefix + "value_residual_mode", fields);
  return spec;
}

}  // namespace

GatedDeltaNetSpec ReadGatedDeltaNet(JsonFields* fields) {
  const GatedDeltaNetSpec spec = ReadCommon<GatedDeltaNetSpec>("gated_deltanet_", 0.75, 1.5, fields);
  const std::optional<int32_t> value_heads = fields->OptionalWhole("gated_deltanet_num_kv_heads");
  if (value_heads.has_value() && *value_heads != spec.num_heads()) {
    fields->AddProblem("gated_deltanet_num_kv_heads", "null or num_attention_heads");
  }
  if (!fields->Flag("gated_deltanet_use_mamba_gate", true)) {
    fields->AddProblem("gated_deltanet_use_mamba_gate", "1, the only form of decay that is offered");
  }
  return spec;
}

KimiDeltaSpec ReadKimiDelta(JsonFields* fields) { return ReadCommon<KimiDeltaSpec>("kda_", 1, 1, fields); }

absl::Span<const ConfigKey> DeltaNetConfigKeys() { return kKeys; }

}  // namespace kvm
