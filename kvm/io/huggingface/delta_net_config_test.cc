#include "kvm/io/huggingface/delta_net_config.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kvm/io/huggingface/huggingface.h"

namespace kvm {
namespace {

absl::StatusOr<HuggingFaceConfig> Parse(const std::string& mixer, const std::string& fields) {
  return ParseHuggingFaceConfig(
      absl::StrCat(R"({"model_type": "rwkv7backbone", "token_mixer": ")", mixer, "\"", fields, "}"), "config.json");
}

TEST(DeltaNetConfig, GatedDeltaNetHasThePublishedDefaults) {
  const absl::StatusOr<HuggingFaceConfig> config = Parse("gated_deltanet", "");
  ASSERT_TRUE(config.ok()) << config.status();
  const GatedDeltaNetSpec& spec = config->spec.mixers(0).gated_delta_net();
  EXPECT_EQ(spec.num_heads(), 6);
  EXPECT_EQ(spec.qk_head_dim(), 96);
  EXPECT_EQ(spec.v_head_dim(), 192);
  EXPECT_EQ(spec.convolution().size(), 4);
  EXPECT_TRUE(spec.convolution().enabled() && spec.output_gate());
  EXPECT_FALSE(spec.convolution().bias() || spec.allow_negative_eigenvalues());
}

TEST(DeltaNetConfig, KimiDeltaReadsEveryKey) {
  const absl::StatusOr<HuggingFaceConfig> config =
      Parse("kda", R"(, "hidden_size": 100, "num_attention_heads": 3, "kda_expand_k": 0.5, "kda_expand_v": 1.3,
                        "kda_conv_size": 2, "kda_conv_bias": 1, "kda_allow_neg_eigval": true,
                        "kda_token_shift_mode": "none", "kda_value_residual_mode": null, "kda_dreams": 1,
                        "gated_deltanet_expand_k": 7, "use_tokenshift_att": 1, "use_value_residual": 1)");
  ASSERT_TRUE(config.ok()) << config.status();
  const KimiDeltaSpec& spec = config->spec.mixers(0).kimi_delta();
  EXPECT_EQ(spec.qk_head_dim(), 16);
  EXPECT_EQ(spec.v_head_dim(), 43);
  EXPECT_EQ(spec.convolution().size(), 2);
  EXPECT_TRUE(spec.convolution().bias() && spec.allow_negative_eigenvalues());
  EXPECT_FALSE(spec.has_decay_lower_bound());
  ASSERT_EQ(config->unused.size(), 1u);
  EXPECT_EQ(config->unused.count("kda_dreams"), 1u);
}

TEST(DeltaNetConfig, RefusesWhatCannotBeNamingTheKey) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"gated_deltanet", R"("gated_deltanet_num_kv_heads": 3)"},
      {"gated_deltanet", R"("gated_deltanet_use_mamba_gate": 0)"},
      {"gated_deltanet", R"("gated_deltanet_token_shift_mode": "rwkv")"},
      {"gated_deltanet", R"("gated_deltanet_value_residual_mode": "rwkv")"},
      {"gated_deltanet", R"("gated_deltanet_expand_k": 0.001)"},
      {"gated_deltanet", R"("gated_deltanet_expand_v": -1)"},
      {"gated_deltanet", R"("gated_deltanet_conv_size": 0)"},
      {"kda", R"("kda_expand_k": 1e300)"},
      {"kda", R"("kda_conv_size": 100)"},
      {"kda", R"("kda_conv_bias": "yes")"},
      {"kda", R"("kda_norm_eps": 1e-6)"},
      {"kda", R"("kda_use_short_conv": false)"},
      {"gated_deltanet", R"("gated_deltanet_norm_eps": 1e-6)"},
      {"gated_deltanet", R"("gated_deltanet_use_gate": false)"},
      {"gated_deltanet", R"("gated_deltanet_use_short_conv": 0)"},
      {"kda", R"("kda_token_shift_mode": "rwkv")"},
      {"kda", R"("num_attention_heads": 0)"},
  };
  for (const auto& [mixer, field] : cases) {
    const absl::StatusOr<HuggingFaceConfig> config = Parse(mixer, ", " + field);
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << field;
    const std::string key = field.substr(1, field.find('"', 1) - 1);
    EXPECT_TRUE(absl::StrContains(config.status().message(), key + ": got ")) << field << ": " << config.status();
  }
}

TEST(DeltaNetConfig, AcceptsTheHeadsAsValueHeads) {
  EXPECT_TRUE(Parse("gated_deltanet", R"(, "gated_deltanet_num_kv_heads": 6)").ok());
  EXPECT_TRUE(Parse("gated_deltanet", R"(, "gated_deltanet_num_kv_heads": null)").ok());
}

}  // namespace
}  // namespace kvm
