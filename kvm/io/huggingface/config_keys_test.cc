#include "kvm/io/huggingface/config_keys.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/io/huggingface/backbone_config_keys.h"
#include "kvm/io/huggingface/delta_net_config.h"
#include "kvm/io/huggingface/huggingface.h"
#include "kvm/io/huggingface/huggingface_writer.h"
#include "nlohmann/json.hpp"

namespace kvm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kStack[] = R"({"model_type": "rwkv7backbone", "token_mixer": "kvm", "hidden_size": 768)";

absl::StatusOr<HuggingFaceConfig> Parse(const std::string& fields) {
  return ParseHuggingFaceConfig(absl::StrCat(kStack, fields.empty() ? "" : ", ", fields, "}"), "config.json");
}

std::string Refusal(const std::string& fields) {
  const absl::StatusOr<HuggingFaceConfig> config = Parse(fields);
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << fields;
  return std::string(config.status().message());
}

double Theta(const std::string& fields) {
  const absl::StatusOr<HuggingFaceConfig> config = Parse(fields);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? config->spec.mixers(0).kvm().projections().rotary_theta() : 0;
}

TEST(ConfigKeys, ArithmeticThatIsNotOfferedIsRefusedWithWhatIs) {
  const struct {
    const char* key;
    const char* value;
    const char* supported;
  } cases[] = {
      {"hidden_act", R"("silu")", R"(null or "relu2" or "squared_relu" or "relu_squared": nothing else is supported)"},
      {"layer_norm_eps", "1e-06", "null or 1e-05: nothing else is supported"},
      {"norm_eps", "0.0001", "null or 1e-05: nothing else is supported"},
      {"rms_norm_eps", R"("small")", "null or 1e-05: nothing else is supported"},
      {"attention_bias", "true", "null or false or 0: nothing else is supported"},
      {"mlp_bias", "1", "null or false or 0: nothing else is supported"},
      {"qk_norm", "false", "null or true or 1: nothing else is supported"},
      {"quantization_config", R"({"bits":4})", "null or {}: nothing else is supported"},
      {"attn_logit_softcapping", "50.0", "null or 0: nothing else is supported"},
      {"layer_types", R"(["full_attention"])", "null: nothing else is supported"},
      {"num_experts", "8", "null or 0: nothing else is supported"},
      {"position_embedding_type", R"("alibi")", R"(null or "rope" or "rotary": nothing else is supported)"},
      {"head_dim", "64", "null or 128, which is what other keys ask for"},
      {"intermediate_size", "2048", "null or 3072, which is what other keys ask for"},
      {"partial_rotary_factor", "1", "null or 0.5, which is what other keys ask for"},
      {"rotary_emb_base", "500000", "null or 10000, which is what other keys ask for"},
      {"final_logit_softcapping", "30", "null or 0, which is what other keys ask for"},
      {"sliding_window", "4096", "null, as no layer of this stack has such a thing"},
      {"n_layer", R"("12")", "null or 12, which is what other keys ask for"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(Refusal(absl::StrCat("\"", c.key, "\": ", c.value)),
                HasSubstr(absl::StrCat(c.key, ": got ", c.value, ", expected ", c.supported)));
    EXPECT_TRUE(Parse(absl::StrCat("\"", c.key, "\": null")).ok()) << c.key;
  }
  // All at once.
  EXPECT_THAT(
      Refusal(R"("norm_eps": 1, "hidden_act": "gelu", "chunk_len": 0)"),
      ::testing::AllOf(HasSubstr("norm_eps: got 1"), HasSubstr("hidden_act: got"), HasSubstr("chunk_len: got 0")));
}

TEST(ConfigKeys, ValuesThatAreComputedAnywayAreFine) {
  for (const char* fields :
       {R"("hidden_act": "relu2")", R"("layer_norm_eps": 1e-5)", R"("norm_eps": 0.00001)", R"("attention_bias": false)",
        R"("attention_bias": 0)", R"("quantization_config": {})", R"("head_dim": 128, "intermediate_size": 3072)",
        R"("partial_rotary_factor": 0.5, "rotary_dim": 64)", R"("logit_softcap": 30, "final_logit_softcapping": 30.0)",
        R"("sliding_window": 4096, "use_sliding_window": false)",
        R"("sliding_window": 256, "alt_layer_every": 2, "alt_token_mixer": "swa")",
        R"("n_layer": 12, "n_head": 6, "n_embd": 768, "num_heads": 6, "num_layers": 12, "d_model": 768)"}) {
    const absl::StatusOr<HuggingFaceConfig> config = Parse(fields);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_THAT(config->notes, IsEmpty()) << fields;
  }
  // Heads of mixers without projections.
  for (const char* mixer : {"rwkv7", "kda"}) {
    EXPECT_TRUE(
        ParseHuggingFaceConfig(
            absl::StrCat(R"({"model_type": "rwkv7backbone", "head_dim": 128, "token_mixer": ")", mixer, "\"}"), "c")
            .ok())
        << mixer;
  }
}

TEST(ConfigKeys, RotarySettingsOfTransformersAreRead) {
  EXPECT_EQ(Theta(""), 1e4);
  EXPECT_EQ(Theta(R"("rope_parameters": {"rope_type": "default", "rope_theta": 500000.0})"), 5e5);
  EXPECT_EQ(Theta(R"("rope_parameters": {"rope_theta": 1000000})"), 1e6);
  EXPECT_EQ(Theta(R"("rope_scaling": {"type": "default", "rope_theta": 2e4, "factor": 1.0})"), 2e4);
  EXPECT_EQ(Theta(R"("rope_theta": 3e4, "rope_parameters": {"rope_theta": 30000, "partial_rotary_factor": 0.5})"), 3e4);
  EXPECT_EQ(Theta(R"("rope_theta": 3e4, "rope_parameters": {}, "rope_scaling": null)"), 3e4);
  // The alternative mixer has a theta of its own.
  const absl::StatusOr<HuggingFaceConfig> two =
      Parse(R"("alt_layer_every": 2, "alt_rope_theta": 7, "rope_parameters": {"rope_theta": 9})");
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(two->spec.mixers(0).kvm().projections().rotary_theta(), 9);
  EXPECT_EQ(two->spec.mixers(1).attention().projections().rotary_theta(), 7);
}

TEST(ConfigKeys, RotaryScalingIsRefusedByName) {
  const struct {
    const char* fields;
    const char* message;
  } cases[] = {
      {R"("rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4})",
       "rope_parameters.rope_type: got \"yarn\", expected \"default\": no scaling is supported"},
      {R"("rope_scaling": {"type": "linear", "factor": 4.0})",
       "rope_scaling.factor: got 4.0, expected 1: no scaling is supported"},
      {R"("rope_theta": 1e4, "rope_parameters": {"rope_theta": 1e6})",
       "rope_parameters.rope_theta: got 1000000.0, expected 10000, which is said elsewhere"},
      {R"("rope_parameters": {"rope_theta": 1e6}, "rope_scaling": {"rope_theta": 1e5})",
       "rope_scaling.rope_theta: got 100000.0, expected 1e+06, which is said elsewhere"},
      {R"("rope_parameters": {"rope_theta": "x"})", "rope_parameters.rope_theta: got \"x\", expected a number"},
      {R"("rope_parameters": {"full_attention": {"rope_theta": 1e6}})",
       "rope_parameters.full_attention: got {\"rope_theta\":1000000.0}, expected null: it is not supported"},
      {R"("rope_parameters": {"partial_rotary_factor": 0.25})",
       "rope_parameters.partial_rotary_factor: got 0.25, expected 0.5, which is what rope_partial_dim and"},
      {R"("rope_scaling": "linear")", "rope_scaling: got \"linear\", expected an object"},
      {R"("rope_parameters": {"rope_theta": -1})", "rope_theta: got -1, expected"},
  };
  for (const auto& c : cases) EXPECT_THAT(Refusal(c.fields), HasSubstr(c.message));
  std::string many = R"("rope_parameters": {"a": 1)";
  for (int i = 0; i < 100000; ++i) absl::StrAppend(&many, ", \"a", i, "\": 1");
  EXPECT_THAT(Refusal(many + "}"), HasSubstr("expected an object of at most 20 fields"));
}

TEST(ConfigKeys, UnknownKeysAreSaid) {
  const auto notes = [](const std::string& fields) {
    const absl::StatusOr<HuggingFaceConfig> config = Parse(fields);
    EXPECT_TRUE(config.ok()) << config.status();
    return config.ok() ? config->notes : std::vector<std::string>();
  };
  EXPECT_THAT(notes(R"("rope_tetha": 5e5, "my_key": 1, "zzz": {}, "kvm_use_vlenz": 0)"),
              ElementsAre("config.json: nothing reads kvm_use_vlenz; did you mean kvm_use_vlens?",
                          "config.json: nothing reads rope_tetha; did you mean rope_theta?",
                          "config.json: nothing reads my_key, zzz"));
  EXPECT_THAT(notes(R"("lact_anything": 1, "output_attentions": false, "mup_base_dim": 768)"), IsEmpty());
  std::string many = R"("q0000": 0)";
  for (int i = 1; i < 1000; ++i) absl::StrAppend(&many, ", \"q", i, "xxxxxxxxxxxx\": 0");
  const std::vector<std::string> few = notes(many + ", \"" + std::string(1 << 20, 'y') + "\": 0");
  ASSERT_EQ(few.size(), 1u);
  EXPECT_THAT(few[0], ::testing::EndsWith(", 981 more"));
}

TEST(ConfigKeys, AreFoundByNameOrBeginning) {
  EXPECT_EQ(FindConfigKey("kda_conv_size")->name, "kda_conv_size");
  EXPECT_EQ(FindConfigKey("lact_x")->name, "lact_*");
  for (const char* name : {"kda_use_mamba_gate", "kda_", "", "lact", "expand_v", "*"}) {
    EXPECT_EQ(FindConfigKey(name), nullptr) << name;
  }
}

TEST(ConfigKeys, HaveWhatTheirUseNeeds) {
  std::set<std::string> names;
  for (const auto keys : {BackboneConfigKeys(), DeltaNetConfigKeys()}) {
    for (const ConfigKey& key : keys) {
      const std::string name(key.name);
      EXPECT_TRUE(names.insert(name).second) << name;
      EXPECT_EQ(key.use == ConfigKeyUse::kRestates, key.restated != nullptr) << name;
      EXPECT_EQ(key.use == ConfigKeyUse::kFixed, nlohmann::json::parse(key.values, nullptr, false).is_array()) << name;
      EXPECT_EQ(FindConfigKey(name), &key) << name;
    }
  }
  EXPECT_GT(names.size(), 150u);
}

// Keys that say the same in other words go when the stack is another one; the others stay.
TEST(ConfigKeys, RestatementsOfAChangedStackAreNotWritten) {
  const absl::StatusOr<HuggingFaceConfig> config =
      Parse(R"("rope_parameters": {"rope_theta": 500000.0}, "head_dim": 128, "layer_norm_eps": 1e-5, "my_key": 1)");
  ASSERT_TRUE(config.ok()) << config.status();
  const absl::StatusOr<std::string> same = FormatHuggingFaceConfig(config->spec, config->fields);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_THAT(*same, HasSubstr("rope_parameters"));
  StackSpec changed = config->spec;
  changed.mutable_mixers(0)->mutable_kvm()->mutable_projections()->set_rotary_theta(2e4);
  const absl::StatusOr<std::string> other = FormatHuggingFaceConfig(changed, config->fields);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_THAT(*other, ::testing::Not(HasSubstr("rope_parameters")));
  EXPECT_THAT(*other, ::testing::Not(HasSubstr("head_dim")));
  EXPECT_THAT(*other, HasSubstr("\"rope_theta\": 20000.0"));
  EXPECT_THAT(*other, HasSubstr("\"layer_norm_eps\": 1e-05"));
  EXPECT_THAT(*other, HasSubstr("\"my_key\": 1"));
}

}  // namespace
}  // namespace kvm
