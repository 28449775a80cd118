// Stacks of Gated DeltaNet and Kimi Delta Attention layers: the promises of conformance.h, and agreement with the
// reference in double precision.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kvm/model/language_model.h"
#include "kvm/model/stack_spec.h"
#include "testing/conformance.h"
#include "testing/model_runs.h"
#include "testing/random_weights.h"
#include "testing/reference_model.h"

namespace kvm {
namespace {

constexpr int64_t kTokens = 6 * kTestChunk + 3;

TestStack Stack(const std::string& name, const std::string& text) {
  absl::StatusOr<StackSpec> spec = ParseStackSpec("vocab_size: 50 width: 32 mlp_expansion: 2 " + text, name);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return {name, spec.ok() ? *std::move(spec) : StackSpec(), kTokens, /*seed=*/1};
}

// Two layers of one mixer.
TestStack Plain(const std::string& name, const std::string& mixer) {
  return Stack(name, absl::StrCat("mixers { name: \"m\" ", mixer, " } layers: [\"m\", \"m\"]"));
}

std::vector<TestStack> Stacks() {
  return {
      Plain("gated_delta_net", "gated_delta_net { num_heads: 2 }"),
      Plain("gated_delta_net_shared_heads",
            "gated_delta_net { num_heads: 2 num_value_heads: 6 qk_head_dim: 5 v_head_dim: 7 "
            "allow_negative_eigenvalues: true convolution { size: 3 bias: true } }"),
      Plain("gated_delta_net_without_gate", "gated_delta_net { num_heads: 4 output_gate: false norm_epsilon: 0.01 }"),
      Plain("gated_delta_net_without_convolution", "gated_delta_net { num_heads: 2 convolution { enabled: false } }"),
      Plain("gated_delta_net_long_convolution", "gated_delta_net { num_heads: 1 convolution { size: 16 } }"),
      Plain("kimi_delta", "kimi_delta { num_heads: 2 }"),
      Plain("kimi_delta_shared_heads",
            "kimi_delta { num_heads: 3 num_value_heads: 6 qk_head_dim: 5 v_head_dim: 7 "
            "allow_negative_eigenvalues: true convolution { size: 2 bias: true } }"),
      Plain("kimi_delta_bounded_decay", "kimi_delta { num_heads: 2 decay_lower_bound: -0.5 convolution { size: 1 } }"),
      Plain("kimi_delta_single_channels", "kimi_delta { num_heads: 5 qk_head_dim: 1 v_head_dim: 1 }"),
      Stack("hybrid", R"(
          mlp_token_shift: true block_lambdas: true skip_connections: true
          mixers { name: "gdn" gated_delta_net { num_heads: 2 v_head_dim: 16 } }
          mixers { name: "kda" kimi_delta { num_heads: 2 } }
          mixers {
            name: "kvm" value_anchor: "gdn"
            kvm {
              projections { num_heads: 2 rotary_dim: 8 token_shift: true }
              chunk_len: 8 budget { growth: POWER_LAW factor: 2 min_rows: 8 max_chunks: 99 }
            }
          }
          mixers { name: "rwkv7" value_anchor: "kda" rwkv7 { num_heads: 2 } }
          layers: ["gdn", "kda", "kvm", "rwkv7", "gdn", "kda"])"),
  };
}

std::string StackName(const ::testing::TestParamInfo<TestStack>& info) { return info.param.name; }

class DeltaNetStacksTest : public ::testing::TestWithParam<TestStack> {
 protected:
  ConformanceSubject subject_{GetParam(), DType::kF32};
};

TEST_P(DeltaNetStacksTest, SameBitsInPieces) { ExpectSameBitsInPieces(subject_); }
TEST_P(DeltaNetStacksTest, SameBitsInRaggedBatches) { ExpectSameBitsInRaggedBatches(subject_); }
TEST_P(DeltaNetStacksTest, SameBitsWithThreads) { ExpectSameBitsWithThreads(subject_); }
TEST_P(DeltaNetStacksTest, ForksAreIndependent) { ExpectForksAreIndependent(subject_); }
TEST_P(DeltaNetStacksTest, Causality) { ExpectCausality(subject_); }
TEST_P(DeltaNetStacksTest, PredictedStateSize) { ExpectPredictedStateSize(subject_); }

TEST_P(DeltaNetStacksTest, AgreesWithTheReference) {
  const TestStack& stack = GetParam();
  const std::unique_ptr<WeightSource> weights = RandomWeights(stack.spec, stack.seed);
  const std::vector<int32_t> tokens = TestTokens(stack.spec, stack.num_tokens, stack.seed);
  const reference::ModelRun expected = reference::RunModel(stack.spec, *weights, tokens);
  // Otherwise rounding could decide where a token of a KVM layer goes; then the stack needs another seed.
  ASSERT_GT(expected.trace.smallest_gap, 1e-4);
  ExecutionContext context(2);
  SequenceState sequence = subject_.model->NewSequence();
  const auto runs = RunInPieces(*subject_.model, {{&sequence, tokens, {}}}, context);
  ASSERT_TRUE(runs.ok()) << runs.status();
  const std::vector<float>& logits = (*runs)[0].logits;
  const size_t vocab = static_cast<size_t>(stack.spec.vocab_size());
  for (size_t i = 0; i < logits.size(); ++i) {
    ASSERT_NEAR(logits[i], expected.logits[i / vocab][i % vocab], 5e-5) << i / vocab << ", " << i % vocab;
  }
}

INSTANTIATE_TEST_SUITE_P(All, DeltaNetStacksTest, ::testing::ValuesIn(Stacks()), StackName);

}  // namespace
}  // namespace kvm
