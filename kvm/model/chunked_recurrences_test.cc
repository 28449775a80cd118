// Stacks whose recurrences run in chunks (ModelOptions::chunked_recurrences) against the same stacks step by step.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/model/language_model.h"
#include "kvm/model/stack/model_options.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/initializer.h"

namespace kvm {
namespace {

constexpr int64_t kVocab = 64;

constexpr char kRwkv7[] = R"(
    vocab_size: 64 width: 32 mlp_expansion: 1 mlp_token_shift: true
    mixers { name: "rwkv7" rwkv7 { num_heads: 2 token_shift: true } }
    layers: ["rwkv7", "rwkv7", "rwkv7"])";

constexpr char kGatedDeltaNet[] = R"(
    vocab_size: 64 width: 32 mlp_expansion: 1
    mixers { name: "gdn" gated_delta_net { num_heads: 2 num_value_heads: 4 qk_head_dim: 6 v_head_dim: 8 } }
    layers: ["gdn", "gdn", "gdn"])";

constexpr char kKimiDelta[] = R"(
    vocab_size: 64 width: 32 mlp_expansion: 1
    mixers { name: "kda" kimi_delta { num_heads: 3 qk_head_dim: 5 v_head_dim: 7 } }
    layers: ["kda", "kda", "kda"])";

std::unique_ptr<LanguageModel> NewModel(const std::string& text, bool chunked) {
  const absl::StatusOr<StackSpec> spec = ParseStackSpec(text, "spec");
  EXPECT_TRUE(spec.ok()) << spec.status();
  ThreadPool pool(1);
  InitializerOptions initializer;
  initializer.block_output_gain = 1;  // otherwise no layer would do anything
  const std::unique_ptr<WeightSource> weights = InitializeWeights(*spec, initializer, pool);
  ModelOptions options;
  options.chunked_recurrences = chunked;
  absl::StatusOr<std::unique_ptr<LanguageModel>> model = LanguageModel::Create(*spec, *weights, options);
  EXPECT_TRUE(model.ok()) << model.status();
  return std::move(*model);
}

// The logits of tokens that are fed in pieces of the given sizes.
std::vector<float> Logits(const LanguageModel& model, const std::vector<int64_t>& pieces, int threads = 1) {
  ExecutionContext context(threads, /*oversubscribe=*/true);
  SequenceState sequence = model.NewSequence();
  std::vector<float> logits;
  for (const int64_t piece : pieces) {
    std::vector<int32_t> tokens;
    for (int64_t i = sequence.position(); i < sequence.position() + piece; ++i) {
      tokens.push_back(static_cast<int32_t>((i * i * 7 + i * 3 + 5) % kVocab));
    }
    std::vector<float> part(piece * kVocab);
    const absl::Status status =
        model.Extend({{&sequence, tokens, MatrixView<float>(part.data(), piece, kVocab)}}, context);
    EXPECT_TRUE(status.ok()) << status;
    logits.insert(logits.end(), part.begin(), part.end());
  }
  return logits;
}

class ChunkedRecurrencesTest : public testing::TestWithParam<const char*> {};

TEST_P(ChunkedRecurrencesTest, AgreesWithStepsUpToRounding) {
  const std::unique_ptr<LanguageModel> steps = NewModel(GetParam(), false), chunks = NewModel(GetParam(), true);
  const std::vector<float> expected = Logits(*steps, {150});
  float largest = 0;
  for (const float x : expected) largest = std::max(largest, std::abs(x));
  ASSERT_GT(largest, 0);
  for (const std::vector<int64_t>& pieces : std::vector<std::vector<int64_t>>{{150}, {70, 1, 17, 2, 60}}) {
    const std::vector<float> logits = Logits(*chunks, pieces);
    ASSERT_EQ(logits.size(), expected.size());
    for (size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(logits[i], expected[i], 1e-4f * largest) << i;
    EXPECT_NE(logits, expected) << "the option has no effect";
  }
}

TEST_P(ChunkedRecurrencesTest, SingleTokensAreSteps) {
  const std::vector<int64_t> ones(40, 1);
  EXPECT_EQ(Logits(*NewModel(GetParam(), true), ones), Logits(*NewModel(GetParam(), false), ones));
}

TEST_P(ChunkedRecurrencesTest, ThreadsChangeNoBit) {
  const std::unique_ptr<LanguageModel> model = NewModel(GetParam(), true);
  EXPECT_EQ(Logits(*model, {70, 33}, 3), Logits(*model, {70, 33}, 1));
}

INSTANTIATE_TEST_SUITE_P(Mixers, ChunkedRecurrencesTest, testing::Values(kRwkv7, kGatedDeltaNet, kKimiDelta));

}  // namespace
}  // namespace kvm
