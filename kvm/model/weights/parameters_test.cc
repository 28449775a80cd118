#include "kvm/model/weights/parameters.h"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/model/stack/stack_spec.h"
#include "testing/allocation_peak.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

StackSpec Parse(const std::string& text) {
  absl::StatusOr<StackSpec> spec = ParseStackSpec(text, "spec");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *spec;
}

// One layer of width 32 with the given mixer.
StackSpec OneLayer(const std::string& mixer) {
  return Parse("vocab_size: 64 width: 32 layers: \"m\" mixers { name: \"m\" " + mixer + " }");
}

std::map<std::string, Shape> Shapes(const StackSpec& spec) {
  std::map<std::string, Shape> shapes;
  for (const Parameter& parameter : StackParameters(spec)) {
    EXPECT_TRUE(shapes.emplace(parameter.name, parameter.shape).second) << parameter.name;
  }
  return shapes;
}

const Parameter& Named(const std::vector<Parameter>& parameters, const std::string& name) {
  for (const Parameter& parameter : parameters) {
    if (parameter.name == name) return parameter;
  }
  ADD_FAILURE() << name;
  return parameters.front();
}

// Tensors of zeros.
class FakeWeights : public WeightSource {
 public:
  explicit FakeWeights(const StackSpec& spec) {
    for (const Parameter& parameter : StackParameters(spec)) Set(parameter.name, DType::kF32, parameter.shape);
  }
  void Set(const std::string& name, DType dtype, const Shape& shape) { tensors_[name] = {dtype, shape, nullptr}; }
  void Remove(const std::string& name) { tensors_.erase(name); }

  std::string Description() const override { return "fake"; }
  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& entry : tensors_) names.push_back(entry.first);
    return names;
  }
  const TensorView* Find(absl::string_view name) const override {
    const auto found = tensors_.find(std::string(name));
    return found == tensors_.end() ? nullptr : &found->second;
  }

 private:
  std::map<std::string, TensorView> tensors_;
};

constexpr char kPrefix[] = "transformer.h.0.attn.";

TEST(StackParameters, BlockWindowsHaveThoseOfAttention) {
  const std::string projections = "{ projections { num_heads: 4 num_kv_heads: 2 rotary_dim: 2 token_shift: true } }";
  EXPECT_EQ(Shapes(OneLayer("block_window " + projections)), Shapes(OneLayer("attention " + projections)));
}

TEST(StackParameters, OvqHasBetaAndNoHeadNorms) {
  auto expected = Shapes(OneLayer("attention { projections { num_heads: 4 rotary_dim: 2 token_shift: true } }"));
  const std::string p = kPrefix;
  for (const char* norm : {"ln_q.weight", "ln_q.bias", "ln_k.weight", "ln_k.bias"}) expected.erase(p + norm);
  expected[p + "beta"] = {4};
  const StackSpec spec = OneLayer("ovq { projections { num_heads: 4 token_shift: true } }");
  EXPECT_EQ(Shapes(spec), expected);
  EXPECT_EQ(Named(StackParameters(spec), p + "beta").initialization.scale, 1);
}

TEST(StackParameters, GroupedHeadsWithDifferentSizes) {
  const auto shapes = Shapes(OneLayer(
      "kvm { projections { num_heads: 4 num_kv_heads: 2 qk_head_dim: 6 v_head_dim: 10 rotary_dim: 2 token_shift: true "
      "value_gate_rank: 7 } chunk_len: 8 }"));
  const std::string p = kPrefix;
  EXPECT_EQ(shapes.at(p + "c_q.weight"), (Shape{24, 32}));
  EXPECT_EQ(shapes.at(p + "c_k.weight"), (Shape{12, 32}));
  EXPECT_EQ(shapes.at(p + "c_v.weight"), (Shape{20, 32}));
  EXPECT_EQ(shapes.at(p + "c_proj.weight"), (Shape{32, 40}));
  EXPECT_EQ(shapes.at(p + "ln_q.weight"), (Shape{6}));
  EXPECT_EQ(shapes.at(p + "x_q"), (Shape{24}));
  EXPECT_EQ(shapes.at(p + "x_k"), (Shape{12}));
  EXPECT_EQ(shapes.at(p + "x_v"), (Shape{20}));
  EXPECT_EQ(shapes.at(p + "v_gate0"), (Shape{1, 1, 20}));
  EXPECT_EQ(shapes.at(p + "v_gate1.weight"), (Shape{7, 32}));
  EXPECT_EQ(shapes.at(p + "v_gate2.weight"), (Shape{20, 7}));
  EXPECT_EQ(shapes.at(p + "ln_s_k.bias"), (Shape{6}));
  EXPECT_EQ(shapes.at(p + "key_weighting.weight"), (Shape{2, 32}));
  EXPECT_EQ(shapes.at(p + "front_head_temp"), (Shape{4}));
  EXPECT_EQ(shapes.at(p + "state_head_temp"), (Shape{4}));
}

TEST(StackParameters, SwitchesLeaveParametersOut) {
  const std::string p = kPrefix;
  const std::string base = "projections { num_heads: 2 rotary_dim: 2 value_residual: NONE } chunk_len: 8 ";
  auto shapes = Shapes(OneLayer("kvm { " + base + "gate_keys: false gate_values: false head_temperatures: false }"));
  for (const char* name : {"x_q", "x_k", "x_v", "v_gate0", "lamb", "key_weighting.weight", "front_head_temp"}) {
    EXPECT_EQ(shapes.count(p + name), 0u) << name;
  }
  shapes = Shapes(OneLayer("kvm { " + base + "gate_keys: false }"));
  EXPECT_EQ(shapes.count(p + "key_weighting.weight"), 1u);
  shapes = Shapes(OneLayer("rwkv7 { num_heads: 2 token_shift: false }"));
  EXPECT_EQ(shapes.count(p + "x_r"), 0u);
  EXPECT_EQ(shapes.at(p + "r_k"), (Shape{2, 16}));
}

TEST(StackParameters, ValueResidualModes) {
  const std::string p = kPrefix;
  const auto of = [](const std::string& projections) {
    return Shapes(OneLayer("attention { projections { num_heads: 2 rotary_dim: 2 " + projections + " } }"));
  };
  auto shapes = of("value_residual: LINEAR");
  EXPECT_EQ(shapes.at(p + "lamb"), Shape());
  EXPECT_EQ(shapes.count(p + "v_gate0"), 0u);
  shapes = of("value_residual: RWKV_POST_TOKEN_SHIFT token_shift: true num_kv_heads: 1");
  EXPECT_EQ(shapes.at(p + "x_v"), (Shape{16}));
  EXPECT_EQ(shapes.at(p + "x_v_hidden"), (Shape{32}));
  shapes = of("value_residual: RWKV_POST_TOKEN_SHIFT token_shift: true");
  EXPECT_EQ(shapes.at(p + "x_v"), (Shape{32}));
  EXPECT_EQ(shapes.count(p + "x_v_hidden"), 0u);
  shapes = of("value_residual: RWKV_POST_TOKEN_SHIFT");
  EXPECT_EQ(shapes.at(p + "x_v"), (Shape{32}));
  EXPECT_EQ(shapes.count(p + "x_q"), 0u);
}

TEST(StackParameters, OptionsOfTheStack) {
  StackSpec spec = OneLayer("rwkv7 { num_heads: 2 }");
  auto shapes = Shapes(spec);
  EXPECT_EQ(shapes.at("lm_head.weight"), (Shape{64, 32}));
  EXPECT_EQ(shapes.at("transformer.h.0.mlp.c_fc.weight"), (Shape{128, 32}));
  EXPECT_EQ(shapes.count("transformer.h.0.mlp.x_k"), 0u);
  EXPECT_EQ(shapes.count("transformer.h.0.lambdas"), 0u);
  EXPECT_EQ(shapes.count("transformer.skip_weights"), 0u);
  spec.set_tied_head(true);
  spec.set_mlp_token_shift(true);
  spec.set_block_lambdas(true);
  spec.set_skip_connections(true);
  for (int i = 0; i < 3; ++i) spec.add_layers("m");
  shapes = Shapes(spec);
  EXPECT_EQ(shapes.count("lm_head.weight"), 0u);
  EXPECT_EQ(shapes.at("transformer.h.3.mlp.x_k"), (Shape{1, 1, 32}));
  EXPECT_EQ(shapes.at("transformer.h.3.lambdas"), (Shape{2}));
  EXPECT_EQ(shapes.at("transformer.skip_weights"), (Shape{2}));
}

TEST(StackParameters, MarksBlockOutputs) {
  StackSpec spec = OneLayer("rwkv7 { num_heads: 2 }");
  *spec.add_mixers() = OneLayer("attention { projections { num_heads: 2 rotary_dim: 2 } }").mixers(0);
  spec.mutable_mixers(1)->set_name("a");
  spec.add_layers("a");
  std::vector<std::string> outputs;
  for (const Parameter& parameter : StackParameters(spec)) {
    if (parameter.is_block_output) outputs.push_back(parameter.name);
  }
  EXPECT_THAT(outputs,
              ::testing::ElementsAre("transformer.h.0.attn.output.weight", "transformer.h.0.mlp.c_proj.weight",
                                     "transformer.h.1.attn.c_proj.weight", "transformer.h.1.mlp.c_proj.weight"));
}

TEST(StackParameters, Rwkv7VectorsBeginAsPublished) {
  StackSpec spec = OneLayer("rwkv7 { num_heads: 2 }");
  spec.add_layers("m");
  spec.set_width(4);
  spec.set_mlp_expansion(8);
  const std::vector<Parameter> parameters = StackParameters(spec);
  const auto value = [&](const std::string& name, int64_t i) {
    return Named(parameters, name).initialization.value(i);
  };
  // Layer 0 of 2: 1 − (i/4)^e.
  EXPECT_DOUBLE_EQ(value("transformer.h.0.attn.x_r", 0), 1);
  EXPECT_NEAR(value("transformer.h.0.attn.x_r", 1), 1 - 0.757858283255199, 1e-12);  // 0.25^0.2
  EXPECT_NEAR(value("transformer.h.0.attn.x_w", 1), 1 - 0.287174588749259, 1e-12);  // 0.25^0.9
  EXPECT_NEAR(value("transformer.h.1.attn.x_k", 1), 1 - 0.615572206672458, 1e-12);  // 0.25^0.35
  // Heads of two channels: z|z| alternates between −1 and 1.
  EXPECT_NEAR(value("transformer.h.0.attn.w0", 0), -6 + 0.5 - 2.5, 1e-12);
  EXPECT_NEAR(value("transformer.h.0.attn.w0", 1), -6 + 6 * (1 / 3.0) + 0.5 + 2.5, 1e-12);
  EXPECT_NEAR(value("transformer.h.1.attn.w0", 2), -6 + 6 * (4 / 9.0) + 0.5 - 2.5, 1e-12);
  EXPECT_NEAR(value("transformer.h.0.attn.a0", 3), -0.19 + 0.3 + 0.2, 1e-12);
  EXPECT_NEAR(value("transformer.h.0.attn.v0", 0), 0.73 + 0.2, 1e-12);
  EXPECT_NEAR(value("transformer.h.0.attn.k_k", 3), 0.71 - 0.05, 1e-12);
  EXPECT_NEAR(Named(parameters, "transformer.h.0.attn.ln_x.weight").initialization.scale, 0.615572206672458, 1e-12);
  EXPECT_EQ(Named(parameters, "transformer.h.1.attn.ln_x.weight").initialization.scale, 1);
}

TEST(StackParameters, OneLayerOfOneChannelHeadsIsFinite) {
  const StackSpec spec = OneLayer("rwkv7 { num_heads: 32 }");
  for (const Parameter& parameter : StackParameters(spec)) {
    if (parameter.initialization.kind != Initialization::Kind::kValues) continue;
    for (int64_t i = 0; i < NumElements(parameter.shape); ++i) {
      EXPECT_TRUE(std::isfinite(parameter.initialization.value(i))) << parameter.name;
    }
  }
}

TEST(NumParameters, CountsByHand) {
  const StackSpec spec = OneLayer("attention { projections { num_heads: 2 rotary_dim: 2 value_residual: NONE } }");
  const int64_t embeddings = 2 * 64 * 32;
  const int64_t stack_norms = 2 * 2 * 32;
  const int64_t layer_norms = 2 * 2 * 32;
  const int64_t attention = 4 * 32 * 32 + 2 * 2 * 16;
  const int64_t mlp = 2 * 128 * 32;
  EXPECT_EQ(NumParameters(spec), embeddings + stack_norms + layer_norms + attention + mlp);
}

TEST(CheckWeights, AcceptsExactlyTheParameters) {
  const StackSpec spec = OneLayer("rwkv7 { num_heads: 2 }");
  FakeWeights weights(spec);
  EXPECT_TRUE(CheckWeights(spec, weights).ok()) << CheckWeights(spec, weights);
  weights.Set("lm_head.weight", DType::kBF16, {64, 32});
  EXPECT_TRUE(CheckWeights(spec, weights).ok());
}

TEST(CheckWeights, ListsAllProblems) {
  const StackSpec spec = OneLayer("rwkv7 { num_heads: 2 }");
  FakeWeights weights(spec);
  weights.Remove("transformer.ln_emb.bias");
  weights.Set("transformer.wte.weight", DType::kF32, {32, 64});
  weights.Set("transformer.h.0.attn.r_k", DType::kI32, {2, 16});
  weights.Set("transformer.h.1.attn.r_k", DType::kF32, {2, 16});
  const absl::Status status = CheckWeights(spec, weights);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr("fake: "));
  EXPECT_THAT(message, HasSubstr("transformer.ln_emb.bias: missing, expected shape [32]"));
  EXPECT_THAT(message, HasSubstr("transformer.wte.weight: has shape [32, 64], expected [64, 32]"));
  EXPECT_THAT(message, HasSubstr("transformer.h.0.attn.r_k: has dtype I32"));
  EXPECT_THAT(message, HasSubstr("transformer.h.1.attn.r_k: unexpected"));
}

TEST(CheckWeights, SaysOnceWhatLayersShare) {
  StackSpec spec = OneLayer("rwkv7 { num_heads: 2 }");
  for (int i = 1; i < 6; ++i) spec.add_layers("m");
  FakeWeights weights(spec);
  for (const int layer : {0, 1, 2, 4}) weights.Remove(absl::StrCat("transformer.h.", layer, ".attn.k_a"));
  for (const Parameter& parameter : StackParameters(spec)) {
    if (absl::StartsWith(parameter.name, "transformer.h.3.")) weights.Remove(parameter.name);
  }
  weights.Set("transformer.h.6.ln_mlp.bias", DType::kF32, {32});
  weights.Set("transformer.h.7.ln_mlp.bias", DType::kF32, {32});
  EXPECT_EQ(std::string(CheckWeights(spec, weights).message()),
            "fake: transformer.h.{0..2,4}.attn.k_a: missing, expected shape [1, 1, 32]; transformer.h.3: missing "
            "entirely; transformer.h.{6,7}.ln_mlp.bias: unexpected, this stack has no such tensor");
}

// No tensor of either goes without mention.
TEST(CheckWeights, NamesEveryTensorOfAnotherModel) {
  const FakeWeights other(OneLayer("rwkv7 { num_heads: 2 }"));
  const StackSpec spec = OneLayer("kvm { projections { num_heads: 2 rotary_dim: 2 token_shift: true } }");
  const std::string message(CheckWeights(spec, other).message());
  for (const Parameter& parameter : StackParameters(spec)) {
    if (other.Find(parameter.name) != nullptr) continue;
    EXPECT_THAT(message, HasSubstr(parameter.name + ": missing, expected shape " + ToString(parameter.shape)));
  }
  const std::map<std::string, Shape> wanted = Shapes(spec);
  for (const std::string& name : other.Names()) {
    if (wanted.count(name) > 0) continue;
    EXPECT_THAT(message, HasSubstr(name + ": unexpected"));
  }
}

// What the spec claims costs next to nothing while there is nothing of it.
TEST(CheckWeights, TakesLittleForLayersThatAreNotThere) {
  const StackSpec small = OneLayer("rwkv7 { num_heads: 2 }");
  StackSpec spec = small;
  for (int i = 1; i < 4096; ++i) spec.add_layers("m");
  const FakeWeights weights(small);
  absl::Status status;
  EXPECT_LT(AllocationPeak([&] { status = CheckWeights(spec, weights); }), size_t{64} << 10);
  EXPECT_EQ(std::string(status.message()), "fake: transformer.h.{1..4095}: missing entirely");
}

TEST(ForEachParameter, IsAtALayerAtATime) {
  StackSpec spec = OneLayer("rwkv7 { num_heads: 2 }");
  for (int i = 1; i < 100; ++i) spec.add_layers("m");
  std::vector<std::string> names;
  for (const Parameter& parameter : StackParameters(spec)) names.push_back(parameter.name);
  size_t visited = 0;
  const size_t peak = AllocationPeak([&] {
    ForEachParameter(spec, [&](const Parameter& parameter) {
      ASSERT_LT(visited, names.size());
      EXPECT_EQ(parameter.name, names[visited++]);
    });
  });
  EXPECT_EQ(visited, names.size());
  EXPECT_LT(peak, size_t{64} << 10);
}

TEST(CheckWeights, AllowsTheUnreadShiftOfUnshiftedValueGates) {
  const std::string name = std::string(kPrefix) + "x_v";
  StackSpec spec = OneLayer("attention { projections { num_heads: 2 rotary_dim: 2 } }");
  FakeWeights weights(spec);
  weights.Set(name, DType::kF32, {32});
  EXPECT_TRUE(CheckWeights(spec, weights).ok()) << CheckWeights(spec, weights);
  spec = OneLayer("attention { projections { num_heads: 2 rotary_dim: 2 value_residual: NONE } }");
  FakeWeights without_gate(spec);
  without_gate.Set(name, DType::kF32, {32});
  EXPECT_FALSE(CheckWeights(spec, without_gate).ok());
}

}  // namespace
}  // namespace kvm
