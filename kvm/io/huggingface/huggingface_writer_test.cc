#include "kvm/io/huggingface/huggingface_writer.h"

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/io/huggingface/huggingface.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/model/stack/canonical_stack.h"
#include "kvm/model/stack/foreign_mixer.pb.h"
#include "kvm/model/stack/stack_spec.h"
#include "nlohmann/json.hpp"

namespace kvm {
namespace {

using ::testing::HasSubstr;

StackSpec Spec(const std::string& text) {
  const absl::StatusOr<StackSpec> spec = ParseStackSpec(text, "spec");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : StackSpec();
}

std::string Refusal(const std::string& text) {
  const absl::StatusOr<std::string> config = FormatHuggingFaceConfig(Spec(text));
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(config.status().message());
}

HuggingFaceConfig Parse(const absl::StatusOr<std::string>& text) {
  EXPECT_TRUE(text.ok()) << text.status();
  if (!text.ok()) return {};
  const absl::StatusOr<HuggingFaceConfig> config = ParseHuggingFaceConfig(*text, "config.json");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : HuggingFaceConfig();
}

// The golden folders' configs, and their stacks with the ranks of their tensors.
struct GoldenConfig {
  std::string name;
  std::string text;
  HuggingFaceConfig parsed;
};

std::vector<GoldenConfig> GoldenConfigs() {
  std::vector<GoldenConfig> configs;
  for (const auto& entry : std::filesystem::directory_iterator("testing/golden")) {
    if (!entry.is_directory()) continue;
    const std::string folder = entry.path().string();
    const absl::StatusOr<std::string> text = ReadFile(folder + "/config.json");
    const absl::StatusOr<std::unique_ptr<SafetensorsFile>> weights =
        SafetensorsFile::Open(folder + "/model.safetensors");
    EXPECT_TRUE(text.ok() && weights.ok()) << folder;
    if (!text.ok() || !weights.ok()) continue;
    configs.push_back({folder, *text, Parse(text)});
    AdoptRanks(**weights, &configs.back().parsed.spec);
  }
  EXPECT_GE(configs.size(), 19u);
  return configs;
}

TEST(FormatHuggingFaceConfig, GoldenConfigsComeBackWithAllFields) {
  for (const GoldenConfig& golden : GoldenConfigs()) {
    const absl::StatusOr<std::string> text = FormatHuggingFaceConfig(golden.parsed.spec, golden.parsed.fields);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(nlohmann::json::parse(*text), nlohmann::json::parse(golden.text)) << golden.name;
  }
}

// Without the file that a stack came from, the stack alone must say it all.
TEST(FormatHuggingFaceConfig, GoldenStacksComeBackFromTheirSpecs) {
  for (const GoldenConfig& golden : GoldenConfigs()) {
    const StackSpec again = Parse(FormatHuggingFaceConfig(golden.parsed.spec)).spec;
    // Once more is the same: what differs from the original is only how it is said.
    const absl::StatusOr<std::string> first = FormatHuggingFaceConfig(golden.parsed.spec);
    const absl::StatusOr<std::string> second = FormatHuggingFaceConfig(again);
    ASSERT_TRUE(second.ok()) << golden.name << ": " << second.status();
    EXPECT_EQ(*first, *second) << golden.name;
    EXPECT_EQ(FormatStackSpec(CanonicalStack(again)), FormatStackSpec(CanonicalStack(golden.parsed.spec)));
    EXPECT_EQ(again.layers_size(), golden.parsed.spec.layers_size());
    EXPECT_EQ(again.mixers(0).kind_case(), golden.parsed.spec.mixers(0).kind_case()) << golden.name;
  }
}

TEST(FormatHuggingFaceConfig, KindsFromElsewhereAreRefusedByName) {
  StackSpec spec;
  spec.add_layers("m");
  MixerSpec& mixer = *spec.add_mixers();
  mixer.set_name("m");
  mixer.MutableExtension(foreign::glance)->set_window(3);
  for (const std::map<std::string, std::string>& fields :
       {std::map<std::string, std::string>(), std::map<std::string, std::string>{{"hidden_size", "768"}}}) {
    EXPECT_EQ(FormatHuggingFaceConfig(spec, fields).status().message(),
              "config.json cannot express this stack: mixer m is of a kind that it does not know");
  }
}

// The ratios of config.json give every size back, whatever it divides.
TEST(FormatHuggingFaceConfig, DeltaNetSizesComeBack) {
  for (const int width : {32, 40, 96, 768}) {
    for (const int dim : {1, 7, 12, 33, 128}) {
      const std::string sizes = absl::StrCat("{ num_heads: 3 qk_head_dim: ", dim, " v_head_dim: ", 2 * dim + 1, " }");
      for (const char* kind : {"gated_delta_net", "kimi_delta"}) {
        const StackSpec spec = Spec(absl::StrCat("vocab_size: 9 width: ", width, " mixers { name: \"main\" ", kind, " ",
                                                 sizes, " } layers: [\"main\"]"));
        const absl::StatusOr<std::string> text = FormatHuggingFaceConfig(spec);
        ASSERT_TRUE(text.ok()) << text.status();
        const MixerSpec mixer = Parse(text).spec.mixers(0);
        const bool gated = mixer.has_gated_delta_net();
        EXPECT_EQ(gated ? mixer.gated_delta_net().qk_head_dim() : mixer.kimi_delta().qk_head_dim(), dim);
        EXPECT_EQ(gated ? mixer.gated_delta_net().v_head_dim() : mixer.kimi_delta().v_head_dim(), 2 * dim + 1);
      }
    }
  }
}

TEST(FormatHuggingFaceConfig, WritesTheKeysOfAHybrid) {
  const absl::StatusOr<std::string> text = FormatHuggingFaceConfig(Spec(R"(
      vocab_size: 100 width: 64 mlp_expansion: 3 mlp_token_shift: true residual_scale: 0.5 tied_head: true
      mixers {
        name: "k"
        value_anchor: "r"
        kvm {
          projections { num_heads: 4 num_kv_heads: 4 rotary_dim: 8 token_shift: true }
          chunk_len: 16 budget { growth: SATURATION limit: 100 round_down: 4 min_rows: 8 max_chunks: 9 }
          gate_values: false
        }
      }
      mixers { name: "r" rwkv7 { num_heads: 4 } }
      layers: ["r", "k", "k", "r"])"));
  ASSERT_TRUE(text.ok()) << text.status();
  const nlohmann::json config = nlohmann::json::parse(*text);
  const nlohmann::json expected = nlohmann::json::parse(R"({
      "model_type": "rwkv7backbone", "architectures": ["RWKV7BackboneForCausalLM"],
      "vocab_size": 100, "hidden_size": 64, "ffn_expansion": 3.0, "use_tokenshift_ffn": true,
      "use_block_lambdas": false, "use_skip_connections": false, "residual_scale": 0.5, "logit_softcap": 0.0,
      "tie_word_embeddings": true, "rope_table_dtype": "bfloat16", "num_hidden_layers": 4, "alt_layer_every": 3,
      "token_mixer": "kvm", "alt_token_mixer": "rwkv7", "alt_share_v0": true,
      "num_attention_heads": 4, "num_key_value_heads": 4, "d_qk_head": 16, "d_v_head": 16,
      "rope_partial_dim": 8, "rope_theta": 10000.0, "use_tokenshift_att": true, "kvm_token_shift_mode": "rwkv",
      "use_value_residual": true, "kvm_value_residual_mode": "rwkv",
      "chunk_len": 16, "n_bswa_chunks": 2, "sink_len": 1, "state_budget_mode": "kvm_saturation",
      "state_saturation_n": 100.0, "state_round_down": 4, "state_min_len": 8, "n_max_d_chunks": 9,
      "kvm_use_merge_gate_keys": true, "kvm_use_merge_gate_values": false,
      "kvm_apply_merge_gate_to_initial_state": false, "kvm_apply_merge_gate_to_appends": false,
      "kvm_use_head_temps": true, "kvm_use_vlens": true})");
  EXPECT_EQ(config, expected);
}

TEST(FormatHuggingFaceConfig, KeepsForeignFieldsAndReplacesWhatContradicts) {
  const std::string stack = R"(width: 64 mixers { name: "m" rwkv7 { num_heads: 2 } } layers: ["m", "m"])";
  const absl::StatusOr<std::string> text = FormatHuggingFaceConfig(
      Spec(stack), {{"hidden_size", "768"}, {"tie_worhidden_sizedings", "false"}, {"mine", R"({"a": [1, null]})"}});
  ASSERT_TRUE(text.ok()) << text.status();
  const nlohmann::json config = nlohmann::json::parse(*text);
  EXPECT_EQ(config["hidden_size"], 64);
  EXPECT_EQ(config["tie_worhidden_sizedings"], false);
  EXPECT_EQ(config["mine"], nlohmann::json::parse(R"({"a": [1, null]})"));
}

TEST(FormatHuggingFaceConfig, RefusesFieldsThatAreNotJson) {
  const std::string stack = R"(width: 64 mixers { name: "m" rwkv7 { num_heads: 2 } } layers: ["m"])";
  const absl::StatusOr<std::string> text = FormatHuggingFaceConfig(Spec(stack), {{"mine", "{"}});
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(text.status().message()), HasSubstr("config.json: mine"));
}

TEST(FormatHuggingFaceConfig, SaysWhatStandsInTheWay) {
  const std::string r = R"(mixers { name: "r" rwkv7 { num_heads: 2 } } )";
  const std::string a =
      R"(mixers { name: "a" attention { projections { num_heads: 2 rotary_dim: 8 token_shift: true } } } )";
  const std::string s = R"(mixers { name: "s" attention { projections { num_heads: 2 rotary_dim: 8 } window: 4 } } )";
  const std::string width = "width: 32 ";
  EXPECT_THAT(Refusal(width + r + a + s + R"(layers: ["r", "a", "s"])"), HasSubstr("here are 3: r, a, s"));
  EXPECT_THAT(Refusal(width + r + a + R"(layers: ["r", "r", "r", "a"])"), HasSubstr("one main mixer"));
  EXPECT_THAT(Refusal(width + r + a + R"(layers: ["r", "a", "a", "r", "r"])"), HasSubstr("layer 4 is of r"));
  // Settings that the two mixers cannot have apart.
  const std::string r4 = R"(mixers { name: "r" rwkv7 { num_heads: 4 } } )";
  EXPECT_THAT(Refusal(width + r4 + a + R"(layers: ["r", "a"])"),
              HasSubstr("num_attention_heads is one for all layers: mixer a needs 2, mixer r 4"));
  const std::string plain = R"(mixers { name: "r" rwkv7 { num_heads: 2 token_shift: false } } )";
  EXPECT_THAT(Refusal(width + plain + a + R"(layers: ["r", "a"])"), HasSubstr("use_tokenshift_att"));
  const std::string none =
      R"(mixers { name: "a" attention { projections { num_heads: 2 rotary_dim: 8 value_residual: NONE } } } )";
  EXPECT_THAT(Refusal(width + none + s + R"(layers: ["a", "s"])"), HasSubstr("use_value_residual"));
  // Only the main mixer has a choice of anchors.
  const std::string anchored =
      R"(mixers { name: "a" value_anchor: "s" attention { projections { num_heads: 2 rotary_dim: 8 } } } )";
  EXPECT_THAT(Refusal(width + anchored + s + R"(layers: ["a", "s"])"), HasSubstr("value anchor of s"));
  // 0 means 1 there.
  EXPECT_THAT(Refusal(width + R"(residual_scale: 0 )" + r + R"(layers: ["r"])"), HasSubstr("residual_scale: 0"));
}

}  // namespace
}  // namespace kvm
