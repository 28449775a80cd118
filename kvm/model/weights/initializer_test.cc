#include "kvm/model/weights/initializer.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/parameters.h"

namespace kvm {
namespace {

StackSpec Spec() {
  absl::StatusOr<StackSpec> spec = ParseStackSpec(R"(
      vocab_size: 80
      width: 32
      mixers { name: "r" rwkv7 { num_heads: 2 } }
      mixers {
        name: "k"
        kvm {
          projections { num_heads: 4 num_kv_heads: 2 rotary_dim: 2 token_shift: true value_residual: LINEAR }
          chunk_len: 8
        }
      }
      layers: ["r", "k", "r", "k"]
      mlp_token_shift: true block_lambdas: true skip_connections: true)",
                                                  "spec");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *spec;
}

std::unique_ptr<WeightSource> Draw(const InitializerOptions& options, int threads) {
  ThreadPool pool(threads, /*oversubscribe=*/true);
  return InitializeWeights(Spec(), options, pool);
}

std::vector<float> Values(const WeightSource& weights, const std::string& name) {
  const TensorView* tensor = weights.Find(name);
  EXPECT_NE(tensor, nullptr) << name;
  return tensor == nullptr ? std::vector<float>() : ReadFloats(*tensor);
}

TEST(InitializeWeights, GivesExactlyTheSpecsParameters) {
  const std::unique_ptr<WeightSource> weights = Draw({}, 1);
  EXPECT_TRUE(CheckWeights(Spec(), *weights).ok()) << CheckWeights(Spec(), *weights);
}

TEST(InitializeWeights, ThreadsChangeNoBit) {
  const std::unique_ptr<WeightSource> one = Draw({}, 1), three = Draw({}, 3);
  for (const std::string& name : one->Names()) EXPECT_EQ(Values(*one, name), Values(*three, name)) << name;
}

// However often it has been asked before: between parameters, inside a matrix, or after the last one.
TEST(InitializeWeights, StopsWhenCancelled) {
  std::atomic<int> asked{0};
  InitializerOptions options;
  options.cancelled = [&] {
    ++asked;
    return false;
  };
  ASSERT_NE(Draw(options, 3), nullptr);
  const int total = asked;
  EXPECT_GT(total, 100);
  for (int patience = 0; patience < total; patience += 7) {
    asked = 0;
    options.cancelled = [&] { return asked++ >= patience; };
    EXPECT_EQ(Draw(options, 3), nullptr) << patience;
    EXPECT_LT(asked, patience + 40);
  }
}

TEST(InitializeWeights, SeedsAndNamesMatter) {
  InitializerOptions other;
  other.seed = 1;
  const std::unique_ptr<WeightSource> a = Draw({}, 1), b = Draw(other, 1);
  const std::string key = "transformer.h.0.attn.key.weight";
  EXPECT_NE(Values(*a, key), Values(*b, key));
  EXPECT_NE(Values(*a, key), Values(*a, "transformer.h.2.attn.key.weight"));
  EXPECT_NE(Values(*a, "transformer.wte.weight"), Values(*b, "transformer.wte.weight"));
}

TEST(InitializeWeights, BlockOutputsBeginAtZero) {
  const std::unique_ptr<WeightSource> weights = Draw({}, 1);
  for (const char* name : {"transformer.h.0.attn.output.weight", "transformer.h.1.attn.c_proj.weight",
                           "transformer.h.3.mlp.c_proj.weight"}) {
    for (const float x : Values(*weights, name)) EXPECT_EQ(x, 0) << name;
  }
}

TEST(InitializeWeights, BlockOutputGainMakesThemOrthogonal) {
  InitializerOptions options;
  options.block_output_gain = 0.5;
  const std::vector<float> output = Values(*Draw(options, 1), "transformer.h.0.attn.output.weight");
  ASSERT_EQ(output.size(), 32u * 32u);
  for (size_t row = 0; row < 32; ++row) {
    double same = 0, next = 0;
    for (size_t i = 0; i < 32; ++i) {
      same += static_cast<double>(output[row * 32 + i]) * static_cast<double>(output[row * 32 + i]);
      next += static_cast<double>(output[row * 32 + i]) * static_cast<double>(output[(row + 1) % 32 * 32 + i]);
    }
    EXPECT_NEAR(same, 0.25, 1e-5);
    EXPECT_NEAR(next, 0, 1e-5);
  }
}

TEST(InitializeWeights, EmbeddingIsSmallAndFillsItsRange) {
  float lowest = 0, highest = 0;
  for (const float x : Values(*Draw({}, 1), "transformer.wte.weight")) {
    lowest = std::min(lowest, x);
    highest = std::max(highest, x);
  }
  EXPECT_GE(lowest, -1e-4f);
  EXPECT_LT(lowest, -0.9e-4f);
  EXPECT_LE(highest, 1e-4f);
  EXPECT_GT(highest, 0.9e-4f);
}

TEST(InitializeWeights, VectorsAndScalars) {
  const std::unique_ptr<WeightSource> weights = Draw({}, 1);
  EXPECT_EQ(Values(*weights, "transformer.h.1.lambdas"), (std::vector<float>{1, 0}));
  EXPECT_EQ(Values(*weights, "transformer.skip_weights"), (std::vector<float>{1, 1}));
  EXPECT_EQ(Values(*weights, "transformer.h.1.attn.lamb"), (std::vector<float>{0.5f}));
  EXPECT_EQ(Values(*weights, "transformer.h.1.attn.state_head_temp"), (std::vector<float>{1, 1, 1, 1}));
  EXPECT_EQ(Values(*weights, "transformer.h.1.attn.key_weighting.weight"), std::vector<float>(64, 0));
  EXPECT_EQ(Values(*weights, "transformer.ln_head.weight"), std::vector<float>(32, 1));
  EXPECT_EQ(Values(*weights, "transformer.ln_head.bias"), std::vector<float>(32, 0));
  EXPECT_EQ(Values(*weights, "transformer.h.1.mlp.x_k")[0], 1);
}

TEST(InitializeWeights, HeadHasTheGainOfItsShape) {
  const std::vector<float> head = Values(*Draw({}, 1), "lm_head.weight");
  double squares = 0;
  for (const float x : head) squares += static_cast<double>(x) * static_cast<double>(x);
  EXPECT_NEAR(squares, 32 * 0.25 * 80 / 32, 1e-3);  // 32 columns of squared length gain² = 0.25·V/D
}

}  // namespace
}  // namespace kvm
