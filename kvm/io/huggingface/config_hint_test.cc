#include "kvm/io/huggingface/config_hint.h"

#include <string>

#include "gtest/gtest.h"
#include "kvm/io/huggingface/huggingface.h"

namespace kvm {
namespace {

std::string Hint(const std::string& fields) {
  const absl::StatusOr<HuggingFaceConfig> config =
      ParseHuggingFaceConfig("{\"model_type\": \"rwkv7backbone\"" + fields + "}", "config.json");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? ConfigHint(*config) : "";
}

constexpr char kAll[] = R"(, "vocab_size": 40, "hidden_size": 32, "num_attention_heads": 2, "token_mixer": "rwkv7")";

TEST(ConfigHint, NamesKeysThatAreAbsentOrNull) {
  EXPECT_EQ(Hint(""),
            "; config.json has no vocab_size (50304 is taken), hidden_size (768 is taken), num_hidden_layers (12 is "
            "taken), num_attention_heads (6 is taken), token_mixer (rwkv7 is taken)");
  for (const char* layers : {"", R"(, "num_hidden_layers": null)"}) {
    EXPECT_EQ(Hint(std::string(kAll) + layers), "; config.json has no num_hidden_layers (12 is taken)");
  }
}

TEST(ConfigHint, NamesKeysThatAreMisspelt) {
  EXPECT_EQ(Hint(std::string(kAll) + R"(, "num_hiden_layers": 2)"),
            "; config.json has no num_hidden_layers (12 is taken); config.json has num_hiden_layers, which nothing "
            "reads; did you mean num_hidden_layers?");
  EXPECT_EQ(Hint(std::string(kAll) + R"(, "num_hidden_layers": 2, "alt_layer_evry": 2)"),
            "; config.json has alt_layer_evry, which nothing reads; did you mean alt_layer_every?");
}

TEST(ConfigHint, SaysNothingOfOtherKeys) {
  const std::string others = R"(, "num_hidden_layers": 2, "architectures": ["x"], "torch_dtype": "bfloat16",
      "use_cache": true, "bos_token_id": 0, "transformers_version": "4.5", "hidden_act": "relu2", "auto_map": {})";
  EXPECT_EQ(Hint(kAll + others), "");
}

}  // namespace
}  // namespace kvm
