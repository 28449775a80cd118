#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/tensor.h"
#include "kvm/kernels/thread_pool.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/initializer.h"
#include "kvm/model/weights/parameters.h"

namespace kvm {
namespace {

constexpr char kPrefix[] = "transformer.h.0.attn.";

StackSpec OneLayer(const std::string& mixer) {
  const absl::StatusOr<StackSpec> spec =
      ParseStackSpec("vocab_size: 64 width: 32 layers: \"m\" mixers { name: \"m\" " + mixer + " }", "spec");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *spec;
}

// The mixer's own parameters, without the prefix.
std::map<std::string, Shape> Shapes(const std::string& mixer) {
  std::map<std::string, Shape> shapes;
  for (const Parameter& parameter : StackParameters(OneLayer(mixer))) {
    if (parameter.name.rfind(kPrefix, 0) != 0) continue;
    EXPECT_TRUE(shapes.emplace(parameter.name.substr(sizeof(kPrefix) - 1), parameter.shape).second) << parameter.name;
  }
  return shapes;
}

TEST(DeltaNetParameters, GatedDeltaNet) {
  const std::map<std::string, Shape> expected = {
      {"q_proj.weight", {12, 32}},
      {"k_proj.weight", {12, 32}},
      {"v_proj.weight", {20, 32}},
      {"q_conv1d.weight", {12, 1, 4}},
      {"k_conv1d.weight", {12, 1, 4}},
      {"v_conv1d.weight", {20, 1, 4}},
      {"b_proj.weight", {4, 32}},
      {"a_proj.weight", {4, 32}},
      {"A_log", {4}},
      {"dt_bias", {4}},
      {"g_proj.weight", {20, 32}},
      {"o_norm.weight", {5}},
      {"o_proj.weight", {32, 20}},
  };
  const std::string sizes = "num_heads: 2 num_value_heads: 4 qk_head_dim: 6 v_head_dim: 5 ";
  EXPECT_EQ(Shapes("gated_delta_net { " + sizes + "}"), expected);
  auto ungated = expected;
  ungated.erase("g_proj.weight");
  EXPECT_EQ(Shapes("gated_delta_net { " + sizes + "output_gate: false }"), ungated);
  auto plain = expected;
  for (const char* name : {"q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"}) plain.erase(name);
  EXPECT_EQ(Shapes("gated_delta_net { " + sizes + "convolution { enabled: false bias: true } }"), plain);
}

TEST(DeltaNetParameters, KimiDelta) {
  const std::map<std::string, Shape> expected = {
      {"q_proj.weight", {12, 32}},
      {"k_proj.weight", {12, 32}},
      {"v_proj.weight", {20, 32}},
      {"q_conv1d.weight", {12, 1, 3}},
      {"k_conv1d.weight", {12, 1, 3}},
      {"v_conv1d.weight", {20, 1, 3}},
      {"q_conv1d.bias", {12}},
      {"k_conv1d.bias", {12}},
      {"v_conv1d.bias", {20}},
      {"b_proj.weight", {4, 32}},
      {"f_proj.0.weight", {5, 32}},
      {"f_proj.1.weight", {24, 5}},
      {"A_log", {4}},
      {"dt_bias", {24}},
      {"g_proj.0.weight", {5, 32}},
      {"g_proj.1.weight", {20, 5}},
      {"g_proj.1.bias", {20}},
      {"o_norm.weight", {5}},
      {"o_proj.weight", {32, 20}},
  };
  EXPECT_EQ(Shapes("kimi_delta { num_heads: 2 num_value_heads: 4 qk_head_dim: 6 v_head_dim: 5 "
                   "convolution { size: 3 bias: true } }"),
            expected);
}

std::vector<float> Initial(const std::string& mixer, const std::string& name) {
  ThreadPool pool(1);
  const std::unique_ptr<WeightSource> weights = InitializeWeights(OneLayer(mixer), {}, pool);
  return ReadFloats(*weights->Find(kPrefix + name));
}

// The log decay of a projection of 0.
double LogDecay(double a_log, double dt_bias) { return -std::exp(a_log) * std::log1p(std::exp(dt_bias)); }

TEST(DeltaNetParameters, NewGatedDeltaNetsDecayFromSlowlyToFast) {
  const std::string mixer = "gated_delta_net { num_heads: 4 }";
  const std::vector<float> a_log = Initial(mixer, "A_log"), dt_bias = Initial(mixer, "dt_bias");
  const double expected[] = {-1 * 1e-3, -6 * std::pow(10, -7.0 / 3), -11 * std::pow(10, -5.0 / 3), -16 * 0.1};
  for (int h = 0; h < 4; ++h) EXPECT_NEAR(LogDecay(a_log[h], dt_bias[h]) / expected[h], 1, 1e-5) << h;
  // A single head stands in the middle.
  const std::string single = "gated_delta_net { num_heads: 1 }";
  EXPECT_NEAR(LogDecay(Initial(single, "A_log")[0], Initial(single, "dt_bias")[0]), -8.5e-2, 1e-6);
}

TEST(DeltaNetParameters, NewKimiDeltasDecayByChannel) {
  const std::string mixer = "kimi_delta { num_heads: 2 qk_head_dim: 3 }";
  const std::vector<float> a_log = Initial(mixer, "A_log"), dt_bias = Initial(mixer, "dt_bias");
  const double expected[] = {1e-3, 1e-2, 1e-1};
  for (int i = 0; i < 6; ++i) {
    EXPECT_NEAR(LogDecay(a_log[i / 3], dt_bias[i]) / (-expected[i % 3] * (i < 3 ? 1 : 16)), 1, 1e-5) << i;
  }
}

TEST(DeltaNetParameters, NewBoundedDecaysHaveTheSameSpread) {
  for (const double bound : {-5.0, -0.05}) {
    const std::string mixer =
        "kimi_delta { num_heads: 1 qk_head_dim: 3 decay_lower_bound: " + std::to_string(bound) + " }";
    const std::vector<float> dt_bias = Initial(mixer, "dt_bias");
    EXPECT_EQ(Initial(mixer, "A_log"), std::vector<float>{0});
    const double largest = bound == -5.0 ? 0.1 : 0.025;  // half of the bound
    const double expected[] = {1e-3, 1e-2, largest};
    for (int i = 0; i < 3; ++i) EXPECT_NEAR(bound / (1 + std::exp(-dt_bias[i])) / -expected[i], 1, 1e-5) << i;
  }
}

TEST(DeltaNetParameters, NewFiltersAreUniformWithinTheirBound) {
  const std::vector<float> taps = Initial("gated_delta_net { num_heads: 1 }", "q_conv1d.weight");
  double largest = 0;
  for (const float tap : taps) largest = std::max(largest, std::abs(double{tap}));
  EXPECT_LE(largest, 0.5);
  EXPECT_GT(largest, 0.45);
  EXPECT_EQ(Initial("kimi_delta { num_heads: 1 convolution { bias: true } }", "k_conv1d.bias"),
            std::vector<float>(32, 0.0f));
}

TEST(DeltaNetParameters, OnlyTheOutputProjectionIsABlockOutput) {
  for (const char* mixer : {"gated_delta_net { num_heads: 1 }", "kimi_delta { num_heads: 1 }"}) {
    for (const Parameter& parameter : StackParameters(OneLayer(mixer))) {
      if (parameter.name.rfind(kPrefix, 0) != 0) continue;
      EXPECT_EQ(parameter.is_block_output, parameter.name == std::string(kPrefix) + "o_proj.weight") << parameter.name;
    }
  }
}

}  // namespace
}  // namespace kvm
