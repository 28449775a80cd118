#include "kvm/io/huggingface/huggingface.h"

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/parameters.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

constexpr char kGolden[] = "testing/golden";

HuggingFaceConfig Parse(const std::string& fields) {
  absl::StatusOr<HuggingFaceConfig> config =
      ParseHuggingFaceConfig(absl::StrCat("{\"model_type\": \"rwkv7backbone\"", fields, "}"), "config.json");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : HuggingFaceConfig();
}

HuggingFaceConfig ParseFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  EXPECT_TRUE(text.ok()) << text.status();
  absl::StatusOr<HuggingFaceConfig> config = ParseHuggingFaceConfig(*text, path);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : HuggingFaceConfig();
}

std::string Refusal(const std::string& fields) {
  const absl::StatusOr<HuggingFaceConfig> config =
      ParseHuggingFaceConfig(absl::StrCat("{\"model_type\": \"rwkv7backbone\"", fields, "}"), "config.json");
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << fields;
  return std::string(config.status().message());
}

TEST(ParseHuggingFaceConfig, GoldenStacksHaveTheirWeights) {
  int folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kGolden)) {
    if (!entry.is_directory()) continue;
    ++folders;
    const std::string folder = entry.path().string();
    HuggingFaceConfig config = ParseFile(folder + "/config.json");
    EXPECT_THAT(config.notes, ::testing::IsEmpty());
    absl::StatusOr<std::unique_ptr<SafetensorsFile>> weights = SafetensorsFile::Open(folder + "/model.safetensors");
    ASSERT_TRUE(weights.ok()) << weights.status();
    AdoptRanks(**weights, &config.spec);
    EXPECT_TRUE(CheckWeights(config.spec, **weights).ok()) << CheckWeights(config.spec, **weights);
    const absl::StatusOr<StackSpec> again = ParseStackSpec(FormatStackSpec(config.spec), folder);
    EXPECT_TRUE(again.ok()) << again.status();
  }
  EXPECT_GE(folders, 22);
}

TEST(ParseHuggingFaceConfig, ReadsAHybrid) {
  const HuggingFaceConfig config = ParseFile(absl::StrCat(kGolden, "/kvm_rwkv7_hybrid/config.json"));
  const absl::StatusOr<StackSpec> expected = ParseStackSpec(R"(
      vocab_size: 64
      width: 32
      mixers {
        name: "main"
        kvm {
          projections {
            num_heads: 2 qk_head_dim: 16 v_head_dim: 16 rotary_dim: 8 rotary_theta: 10000 token_shift: true
            value_residual: RWKV
          }
          chunk_len: 8 window_chunks: 2 num_sinks: 1
          budget {
            growth: POWER_LAW factor: 2 exponent: 0.5 round_down: 1 min_rows: 8 max_chunks: 10000
          }
          gate_keys: true gate_values: true gate_initial_rows: false gate_appended_rows: true
          head_temperatures: true use_radius: true
        }
      }
      mixers { name: "alt" rwkv7 { num_heads: 2 token_shift: true } }
      layers: ["alt", "main", "alt", "main"]
      mlp_expansion: 1 mlp_token_shift: true block_lambdas: false skip_connections: false residual_scale: 1
      logit_softcap: 0 rotary_table: FLOAT32 tied_head: false)",
                                                            "expected");
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_EQ(FormatStackSpec(config.spec), FormatStackSpec(*expected));
}

TEST(ParseHuggingFaceConfig, ReadsWindowsAndSaturation) {
  const StackSpec spec = ParseFile(absl::StrCat(kGolden, "/kvm_saturate_swa/config.json")).spec;
  const BudgetSpec& budget = spec.mixers(0).kvm().budget();
  EXPECT_EQ(budget.growth(), BudgetSpec::SATURATION);
  EXPECT_EQ(budget.limit(), 32);
  EXPECT_EQ(budget.min_rows(), 1);
  EXPECT_EQ(spec.mixers(1).attention().window(), 8);
  EXPECT_EQ(spec.mixers(1).attention().projections().rotary_dim(), 16);
}

TEST(ParseHuggingFaceConfig, ReadsBlockExtras) {
  const StackSpec spec = ParseFile(absl::StrCat(kGolden, "/kvm_block_extras/config.json")).spec;
  EXPECT_TRUE(spec.block_lambdas());
  EXPECT_TRUE(spec.skip_connections());
  EXPECT_EQ(spec.logit_softcap(), 15);
  EXPECT_EQ(spec.residual_scale(), 0.5);
  EXPECT_EQ(spec.mixers(0).kvm().projections().value_residual(), ProjectionSpec::LINEAR);
}

TEST(ParseHuggingFaceConfig, AbsentAndNullFieldsHaveThePublishedDefaults) {
  for (const char* fields : {"", R"(, "vocab_size": null, "num_hidden_layers": null, "token_mixer": null,
                                     "residual_scale": null, "alt_layer_every": null, "use_tokenshift_att": null)"}) {
    const StackSpec spec = Parse(fields).spec;
    EXPECT_EQ(spec.vocab_size(), 50304);
    EXPECT_EQ(spec.width(), 768);
    EXPECT_EQ(spec.layers_size(), 12);
    EXPECT_EQ(spec.mlp_expansion(), 4);
    EXPECT_EQ(spec.residual_scale(), 1);
    EXPECT_EQ(spec.rotary_table(), StackSpec::BFLOAT16);
    EXPECT_FALSE(spec.mlp_token_shift());
    ASSERT_EQ(spec.mixers_size(), 1);
    EXPECT_EQ(spec.mixers(0).rwkv7().num_heads(), 6);
    EXPECT_FALSE(spec.mixers(0).rwkv7().token_shift());
  }
  const KvmSpec kvm = Parse(R"(, "token_mixer": "kvm")").spec.mixers(0).kvm();
  EXPECT_EQ(kvm.chunk_len(), 256);
  EXPECT_EQ(kvm.window_chunks(), 2);
  EXPECT_EQ(kvm.num_sinks(), 1);
  EXPECT_EQ(kvm.budget().growth(), BudgetSpec::FIXED);
  EXPECT_EQ(kvm.budget().min_rows(), -1);
  EXPECT_EQ(kvm.budget().max_chunks(), 1);
  EXPECT_FALSE(kvm.gate_appended_rows());
  EXPECT_FALSE(kvm.gate_initial_rows());
  EXPECT_TRUE(kvm.gate_keys() && kvm.gate_values() && kvm.head_temperatures() && kvm.use_radius());
  EXPECT_EQ(kvm.projections().rotary_dim(), 64);
  EXPECT_EQ(kvm.projections().value_residual(), ProjectionSpec::RWKV);
}

TEST(ParseHuggingFaceConfig, AltLayersAreEveryNth) {
  const StackSpec spec =
      Parse(R"(, "token_mixer": "kvm", "alt_layer_every": 3, "num_hidden_layers": 5, "alt_share_v0": 1)").spec;
  EXPECT_THAT(spec.layers(), ::testing::ElementsAre("alt", "main", "main", "alt", "main"));
  EXPECT_EQ(spec.mixers(0).value_anchor(), "alt");
  EXPECT_EQ(spec.mixers(1).attention().window(), 256);  // chunk_len, as swa_window_size is −1
  EXPECT_EQ(Parse(R"(, "alt_layer_every": 1)").spec.mixers_size(), 1);
  EXPECT_EQ(Parse(R"(, "alt_layer_every": 0)").spec.mixers_size(), 1);
}

TEST(ParseHuggingFaceConfig, ResidualAndShiftModesGoByTheMixersKind) {
  const std::string modes =
      R"(, "gptalpha_value_residual_mode": "linear", "swa_value_residual_mode": "rwkv_post_tokenshift",
          "gptalpha_token_shift_mode": "none", "use_tokenshift_att": true, "alt_layer_every": 2)";
  StackSpec spec = Parse(R"(, "token_mixer": "gptalpha")" + modes).spec;
  EXPECT_EQ(spec.mixers(0).attention().projections().value_residual(), ProjectionSpec::LINEAR);
  EXPECT_FALSE(spec.mixers(0).attention().projections().token_shift());
  EXPECT_FALSE(spec.mixers(0).attention().has_window());
  EXPECT_EQ(spec.mixers(1).attention().projections().value_residual(), ProjectionSpec::RWKV_POST_TOKEN_SHIFT);
  EXPECT_TRUE(spec.mixers(1).attention().projections().token_shift());
  spec = Parse(R"(, "token_mixer": "gptalpha", "use_value_residual": 0)" + modes).spec;
  EXPECT_EQ(spec.mixers(0).attention().projections().value_residual(), ProjectionSpec::NONE);
  EXPECT_EQ(spec.mixers(1).attention().projections().value_residual(), ProjectionSpec::NONE);
}

TEST(ParseHuggingFaceConfig, ReadsBlockWindows) {
  const std::string modes = R"(, "gptalpha_value_residual_mode": "linear", "use_tokenshift_att": 1)";
  const BlockWindowSpec defaults = Parse(R"(, "token_mixer": "gptalpha_bswa")").spec.mixers(0).block_window();
  EXPECT_EQ(defaults.chunk_len(), 256);
  EXPECT_EQ(defaults.window_chunks(), 2);
  EXPECT_EQ(defaults.num_sinks(), 1);
  const std::string sizes = R"(, "chunk_len": 64, "n_bswa_chunks": 3, "sink_len": 100)";
  const BlockWindowSpec spec =
      Parse(R"(, "token_mixer": "gptalpha_bswa")" + sizes + modes).spec.mixers(0).block_window();
  EXPECT_EQ(spec.chunk_len(), 64);
  EXPECT_EQ(spec.window_chunks(), 3);
  EXPECT_EQ(spec.num_sinks(), 100);
  EXPECT_EQ(spec.projections().value_residual(), ProjectionSpec::LINEAR);
  EXPECT_TRUE(spec.projections().token_shift());
}

TEST(ParseHuggingFaceConfig, ReadsOvq) {
  const OvqSpec defaults = Parse(R"(, "token_mixer": "ovq")").spec.mixers(0).ovq();
  EXPECT_EQ(defaults.chunk_len(), 128);
  EXPECT_EQ(defaults.max_centroids(), 2048);
  EXPECT_FALSE(defaults.grow_linearly() || defaults.counts_for_rate_only() || defaults.delta_rule() ||
               defaults.normalize_centroids());
  EXPECT_EQ(defaults.projections().value_residual(), ProjectionSpec::RWKV);
  // Each flag by itself; the heads are too narrow for the default rotary channels, which are not used.
  const char* flags[] = {"ovq_use_min_state_size", "ovq_use_counts_for_lr_only", "ovq_use_delta_rule",
                         "ovq_normalize_centroids"};
  for (int i = 0; i < 4; ++i) {
    const OvqSpec spec = Parse(absl::StrCat(R"(, "token_mixer": "ovq", "num_attention_heads": 24, "chunk_len": 7,
                                               "ovq_chunk_size": 16, "ovq_max_centroids": 99, "use_tokenshift_att": 1,
                                               "ovq_token_shift_mode": "none", ")",
                                            flags[i], "\": 1"))
                             .spec.mixers(0)
                             .ovq();
    EXPECT_EQ(spec.chunk_len(), 16);
    EXPECT_EQ(spec.max_centroids(), 99);
    EXPECT_FALSE(spec.projections().token_shift());
    EXPECT_EQ(spec.grow_linearly(), i == 0);
    EXPECT_EQ(spec.counts_for_rate_only(), i == 1);
    EXPECT_EQ(spec.delta_rule(), i == 2);
    EXPECT_EQ(spec.normalize_centroids(), i == 3);
  }
}

TEST(ParseHuggingFaceConfig, HeadSizesOverrideEachOther) {
  const auto sizes = [](const std::string& fields) {
    return ResolveHeads(Parse(R"(, "token_mixer": "gptalpha", "rope_partial_dim": 2)" + fields)
                            .spec.mixers(0)
                            .attention()
                            .projections(),
                        768);
  };
  EXPECT_EQ(sizes("").qk_dim, 128);
  EXPECT_EQ(sizes(R"(, "d_head": 32)").qk_dim, 32);
  EXPECT_EQ(sizes(R"(, "d_head": 32, "d_qk_head": 16)").qk_dim, 16);
  EXPECT_EQ(sizes(R"(, "d_head": 32, "d_qk_head": 16)").v_dim, 32);
  EXPECT_EQ(sizes(R"(, "d_head": 32, "d_v_head": 8)").v_dim, 8);
  EXPECT_EQ(sizes(R"(, "num_key_value_heads": 3)").num_kv_heads, 3);
}

TEST(ParseHuggingFaceConfig, ResidualScaleOfZeroIsOne) {
  EXPECT_EQ(Parse(R"(, "residual_scale": 0)").spec.residual_scale(), 1);
  EXPECT_EQ(Parse(R"(, "residual_scale": 0.5)").spec.residual_scale(), 0.5);
}

TEST(ParseHuggingFaceConfig, ReportsKeysWithoutEffect) {
  const HuggingFaceConfig config =
      Parse(R"(, "use_l2wrap": false, "lact_chunk_size": -1, "torch_dtype": "bfloat16", "my_key": {"a": [1]},
                "ovq_window_size": 128, "ovq_chunk_size": 128, "kda_expand_k": 1.0, "hidden_size": 768)");
  EXPECT_THAT(config.unused, ::testing::UnorderedElementsAre(
                                 ::testing::Pair("use_l2wrap", "false"), ::testing::Pair("lact_chunk_size", "-1"),
                                 ::testing::Pair("torch_dtype", "\"bfloat16\""),
                                 ::testing::Pair("my_key", "{\"a\":[1]}"), ::testing::Pair("ovq_window_size", "128")));
}

TEST(ParseHuggingFaceConfig, RefusesWithTheKeyAtFault) {
  struct Case {
    const char* key;
    const char* fields;
  };
  const std::vector<Case> cases = {
      {"vocab_size", R"("vocab_size": 0)"},
      {"vocab_size", R"("vocab_size": "64")"},
      {"vocab_size", R"("vocab_size": 1e3)"},
      {"hidden_size", R"("hidden_size": -768)"},
      {"hidden_size", R"("hidden_size": 99999999999)"},
      {"num_hidden_layers", R"("num_hidden_layers": 0)"},
      {"num_hidden_layers", R"("num_hidden_layers": 2000000000)"},
      {"num_attention_heads", R"("num_attention_heads": 0)"},
      {"num_attention_heads", R"("num_attention_heads": 5)"},
      {"num_key_value_heads", R"("num_key_value_heads": 4)"},
      {"num_key_value_heads", R"("num_key_value_heads": 0)"},
      {"d_head", R"("d_head": 0)"},
      {"d_qk_head", R"("d_qk_head": -1)"},
      {"d_v_head", R"("d_v_head": 1.5)"},
      {"ffn_expansion", R"("ffn_expansion": 0)"},
      {"rope_partial_dim", R"("rope_partial_dim": -1)"},
      {"rope_partial_dim", R"("rope_partial_dim": 7)"},
      {"rope_partial_dim", R"("rope_partial_dim": 128)"},
      {"rope_partial_dim", R"("d_head": 32)"},
      {"rope_theta", R"("rope_theta": 0)"},
      {"alt_rope_partial_dim", R"("alt_layer_every": 2, "alt_rope_partial_dim": 130)"},
      {"alt_rope_theta", R"("alt_layer_every": 2, "alt_rope_theta": -1)"},
      {"token_mixer", R"("token_mixer": "mamba")"},
      {"sink_len", R"("token_mixer": "gptalpha_bswa", "sink_len": -1)"},
      {"n_bswa_chunks", R"("token_mixer": "gptalpha_bswa", "n_bswa_chunks": 0)"},
      {"gptalpha_token_shift_mode", R"("token_mixer": "gptalpha_bswa", "gptalpha_token_shift_mode": "linear")"},
      {"ovq_chunk_size", R"("token_mixer": "ovq", "ovq_chunk_size": 0)"},
      {"ovq_max_centroids", R"("token_mixer": "ovq", "ovq_max_centroids": 0)"},
      {"ovq_use_delta_rule", R"("token_mixer": "ovq", "ovq_use_delta_rule": 2)"},
      {"ovq_value_residual_mode", R"("token_mixer": "ovq", "ovq_value_residual_mode": "learned")"},
      {"num_key_value_heads", R"("token_mixer": "ovq", "num_key_value_heads": 3)"},
      {"d_v_head", R"("token_mixer": "ovq", "d_v_head": 64)"},
      {"d_v_head", R"("token_mixer": "ovq", "d_head": 64)"},
      {"alt_token_mixer", R"("alt_layer_every": 2, "alt_token_mixer": "mamba")"},
      {"use_tokenshift_ffn", R"("use_tokenshift_ffn": 2)"},
      {"use_skip_connections", R"("use_skip_connections": 1, "num_hidden_layers": 3)"},
      {"kvm_value_residual_mode", R"("kvm_value_residual_mode": "learned")"},
      {"kvm_token_shift_mode", R"("kvm_token_shift_mode": "linear")"},
      {"kvm_use_vlens", R"("kvm_use_vlens": "yes")"},
      {"swa_window_size", R"("alt_layer_every": 2, "swa_window_size": 99999999)"},
      {"chunk_len", R"("chunk_len": 0)"},
      {"n_bswa_chunks", R"("n_bswa_chunks": 0)"},
      {"sink_len", R"("sink_len": 257)"},
      {"sink_len", R"("sink_len": 256)"},
      {"state_budget_mode", R"("state_budget_mode": "linear")"},
      {"state_growth_factor", R"("state_budget_mode": "power_law", "state_growth_factor": 0)"},
      {"state_growth_exponent", R"("state_budget_mode": "power_law", "state_growth_exponent": 2)"},
      {"state_saturation_n", R"("state_budget_mode": "kvm_saturation")"},
      {"state_round_down", R"("state_budget_mode": "power_law", "state_round_down": 0)"},
      {"state_min_len", R"("state_min_len": -2)"},
      {"n_max_d_chunks", R"("n_max_d_chunks": 0)"},
      {"logit_softcap", R"("logit_softcap": -1)"},
      {"rope_table_dtype", R"("rope_table_dtype": "float16")"},
      {"alt_share_v0", R"("alt_share_v0": 1, "alt_layer_every": 2, "alt_token_mixer": "rwkv7", "d_v_head": 64)"},
      {"tie_word_embeddings", R"("tie_word_embeddings": [])"},
  };
  for (const Case& c : cases) {
    std::string fields = absl::StrCat(", ", c.fields);
    if (fields.find("\"token_mixer\"") == std::string::npos) fields += R"(, "token_mixer": "kvm")";
    EXPECT_THAT(Refusal(fields), ::testing::AnyOf(HasSubstr(absl::StrCat("config.json: ", c.key, ": got ")),
                                                  HasSubstr(absl::StrCat("; ", c.key, ": got "))))
        << c.fields;
  }
}

TEST(ParseHuggingFaceConfig, ListsEveryFieldAtFault) {
  EXPECT_THAT(Refusal(R"(, "hidden_size": 99999999999, "chunk_len": -3000000000, "token_mixer": "kvm")"),
              ::testing::AllOf(HasSubstr("hidden_size: got 99999999999, expected a whole number from 1 to 16777216"),
                               HasSubstr("chunk_len: got -3000000000, expected a whole number from 1 to 16777216")));
  const std::string message = Refusal(R"(, "token_mixer": "mamba", "vocab_size": "x", "hidden_size": 0)");
  EXPECT_THAT(message, HasSubstr("vocab_size: got \"x\""));
  EXPECT_THAT(message, HasSubstr("; token_mixer: got \"mamba\", expected one of gptalpha, gptalpha_bswa, swa, "));
  EXPECT_THAT(message, HasSubstr("; hidden_size: got 0"));
}

TEST(ParseHuggingFaceConfig, RefusesOtherModelsAndBrokenText) {
  const auto message = [](const std::string& text) {
    return std::string(ParseHuggingFaceConfig(text, "config.json").status().message());
  };
  EXPECT_THAT(message(R"({"model_type": "llama"})"), HasSubstr("model_type: got \"llama\", expected"));
  EXPECT_THAT(message("{}"), HasSubstr("model_type: got nothing, expected \"rwkv7backbone\""));
  EXPECT_THAT(message("{"), HasSubstr("config.json: "));
  EXPECT_THAT(message(R"({"model_type": "rwkv7backbone", "d_head": 1, "d_head": 2})"), HasSubstr("d_head"));
}

class ShapesOnly : public WeightSource {
 public:
  explicit ShapesOnly(std::map<std::string, Shape> shapes) {
    for (auto& [name, shape] : shapes) tensors_[name] = {DType::kF32, shape, nullptr};
  }
  std::string Description() const override { return "shapes"; }
  std::vector<std::string> Names() const override { return {}; }
  const TensorView* Find(absl::string_view name) const override {
    const auto found = tensors_.find(std::string(name));
    return found == tensors_.end() ? nullptr : &found->second;
  }

 private:
  std::map<std::string, TensorView> tensors_;
};

TEST(AdoptRanks, TakesThemFromTheFirstLayerOfEachMixer) {
  StackSpec spec = Parse(R"(, "token_mixer": "kvm", "alt_token_mixer": "rwkv7", "alt_layer_every": 2)").spec;
  const std::string rwkv7 = "transformer.h.0.attn.", kvm = "transformer.h.";
  AdoptRanks(ShapesOnly({{rwkv7 + "w1.weight", {3, 768}},
                         {rwkv7 + "a1.weight", {4, 768}},
                         {rwkv7 + "v1.weight", {5, 768}},
                         {rwkv7 + "g1.weight", {6, 768}},
                         {kvm + "1.attn.v_gate1.weight", {7, 768}},
                         {kvm + "3.attn.v_gate1.weight", {8, 768}}}),
             &spec);
  const Rwkv7Ranks ranks = ResolveRanks(spec.mixers(1).rwkv7(), 768);
  EXPECT_EQ(ranks.decay, 3);
  EXPECT_EQ(ranks.in_context_rate, 4);
  EXPECT_EQ(ranks.value, 5);
  EXPECT_EQ(ranks.gate, 6);
  EXPECT_EQ(spec.mixers(0).kvm().projections().value_gate_rank(), 7);
}

TEST(AdoptRanks, KnowsAllAttentionStyleMixers) {
  StackSpec spec = Parse(R"(, "token_mixer": "ovq", "alt_token_mixer": "gptalpha_bswa", "alt_layer_every": 2)").spec;
  AdoptRanks(ShapesOnly({{"transformer.h.0.attn.v_gate1.weight", {7, 768}},
                         {"transformer.h.1.attn.v_gate1.weight", {9, 768}}}),
             &spec);
  EXPECT_EQ(spec.mixers(0).ovq().projections().value_gate_rank(), 9);
  EXPECT_EQ(spec.mixers(1).block_window().projections().value_gate_rank(), 7);
}

TEST(AdoptRanks, LeavesDefaultsWhereThereIsNoSuchMatrix) {
  StackSpec spec = Parse(R"(, "token_mixer": "kvm")").spec;
  AdoptRanks(ShapesOnly({{"transformer.h.0.attn.v_gate1.weight", {7}}}), &spec);
  EXPECT_FALSE(spec.mixers(0).kvm().projections().has_value_gate_rank());
}

}  // namespace
}  // namespace kvm
