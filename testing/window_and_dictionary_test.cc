// Stacks of block window and OVQ layers: the promises of conformance.h, agreement with the reference in double
// precision, and grouped heads that equal repeated ones.

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "kvm/model/language_model.h"
#include "kvm/model/stack_spec.h"
#include "testing/conformance.h"
#include "testing/model_runs.h"
#include "testing/random_weights.h"
#include "testing/reference_model.h"

namespace kvm {
namespace {

constexpr char kBackbone[] = "vocab_size: 50 width: 32 mlp_expansion: 2 mlp_token_shift: true rotary_table: FLOAT32 ";
constexpr char kHeads[] = "projections { num_heads: 2 rotary_dim: 8 token_shift: true } ";
constexpr int64_t kTokens = 6 * kTestChunk + 3;

StackSpec Parse(const std::string& text) {
  absl::StatusOr<StackSpec> spec = ParseStackSpec(text, "stack");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *std::move(spec) : StackSpec();
}

// Two layers of one mixer; "HEADS" stands for usual projections.
TestStack Plain(const std::string& name, const std::string& mixer, uint64_t seed = 1) {
  const std::string text = absl::StrCat(kBackbone, "mixers { name: \"m\" ", mixer, "} layers: [\"m\", \"m\"]");
  return {name, Parse(absl::StrReplaceAll(text, {{"HEADS", kHeads}})), kTokens, seed};
}

std::vector<TestStack> Stacks() {
  std::vector<TestStack> stacks = {
      Plain("block_window", "block_window { HEADS chunk_len: 8 }"),
      Plain("block_window_of_one_chunk", "block_window { HEADS chunk_len: 8 window_chunks: 1 num_sinks: 3 }"),
      Plain("block_window_of_three_chunks", "block_window { HEADS chunk_len: 8 window_chunks: 3 num_sinks: 0 }"),
      Plain("block_window_of_single_tokens", "block_window { HEADS chunk_len: 1 window_chunks: 3 num_sinks: 2 }"),
      Plain("block_window_with_many_sinks", "block_window { HEADS chunk_len: 8 num_sinks: 20 }"),
      Plain("block_window_with_only_sinks", "block_window { HEADS chunk_len: 8 window_chunks: 1 num_sinks: 99 }"),
      Plain("block_window_grouped_heads",
            "block_window { projections { num_heads: 6 num_kv_heads: 2 qk_head_dim: 10 v_head_dim: 7 rotary_dim: 6 "
            "value_residual: RWKV_POST_TOKEN_SHIFT } chunk_len: 5 }"),
      Plain("ovq", "ovq { HEADS chunk_len: 8 max_centroids: 20 }", /*seed=*/2),
      Plain("ovq_of_single_tokens", "ovq { HEADS chunk_len: 1 max_centroids: 9 }"),
      Plain("ovq_of_one_centroid", "ovq { HEADS chunk_len: 4 max_centroids: 1 }"),
      Plain("ovq_smaller_than_a_chunk", "ovq { HEADS chunk_len: 8 max_centroids: 5 grow_linearly: true }"),
      Plain("ovq_linear_residual",
            "ovq { projections { num_heads: 4 value_residual: LINEAR } chunk_len: 7 max_centroids: 40 }"),
  };
  for (int flags = 1; flags < 16; ++flags) {
    const auto flag = [flags](int i) { return (flags >> i & 1) != 0 ? "true" : "false"; };
    stacks.push_back(Plain(absl::StrCat("ovq_flags_", flags),
                           absl::StrCat("ovq { HEADS chunk_len: 8 max_centroids: 20 grow_linearly: ", flag(0),
                                        " counts_for_rate_only: ", flag(1), " delta_rule: ", flag(2),
                                        " normalize_centroids: ", flag(3), " }"),
                           /*seed=*/2));
  }
  const std::string mixed = absl::StrCat(
      kBackbone, "mixers { name: \"window\" block_window { ", kHeads, "chunk_len: 8 } } ",
      "mixers { name: \"ovq\" value_anchor: \"window\" ovq { ", kHeads, "chunk_len: 5 max_centroids: 20 } } ",
      "mixers { name: \"rwkv7\" rwkv7 { num_heads: 2 } } layers: [\"rwkv7\", \"ovq\", \"window\", \"ovq\"] ",
      "block_lambdas: true skip_connections: true");
  stacks.push_back({"mixed", Parse(mixed), kTokens, 1});
  return stacks;
}

using Parameters = std::tuple<TestStack, DType>;

std::string CaseName(const ::testing::TestParamInfo<Parameters>& info) {
  return absl::StrCat(std::get<0>(info.param).name, "_", Name(std::get<1>(info.param)));
}

class WindowAndDictionaryTest : public ::testing::TestWithParam<Parameters> {
 protected:
  ConformanceSubject subject_{std::get<0>(GetParam()), std::get<1>(GetParam())};
};

TEST_P(WindowAndDictionaryTest, SameBitsInPieces) { ExpectSameBitsInPieces(subject_); }
TEST_P(WindowAndDictionaryTest, SameBitsInRaggedBatches) { ExpectSameBitsInRaggedBatches(subject_); }
TEST_P(WindowAndDictionaryTest, SameBitsWithThreads) { ExpectSameBitsWithThreads(subject_); }
TEST_P(WindowAndDictionaryTest, ForksAreIndependent) { ExpectForksAreIndependent(subject_); }
TEST_P(WindowAndDictionaryTest, Causality) { ExpectCausality(subject_); }
TEST_P(WindowAndDictionaryTest, PredictedStateSize) { ExpectPredictedStateSize(subject_); }

INSTANTIATE_TEST_SUITE_P(All, WindowAndDictionaryTest,
                         ::testing::Combine(::testing::ValuesIn(Stacks()),
                                            ::testing::Values(DType::kF32, DType::kBF16)),
                         CaseName);

class ReferenceTest : public ::testing::TestWithParam<TestStack> {};

TEST_P(ReferenceTest, LanguageModelAgreesWithTheReference) {
  const TestStack& stack = GetParam();
  const std::unique_ptr<WeightSource> weights = RandomWeights(stack.spec, stack.seed);
  const std::vector<int32_t> tokens = TestTokens(stack.spec, stack.num_tokens, stack.seed);
  const reference::ModelRun expected = reference::RunModel(stack.spec, *weights, tokens);
  // Otherwise rounding could decide where a token goes; then the stack needs another seed.
  ASSERT_GT(expected.trace.smallest_gap, 1e-4);
  const auto model = LanguageModel::Create(stack.spec, *weights, {});
  ASSERT_TRUE(model.ok()) << model.status();
  ExecutionContext context(2);
  SequenceState sequence = (*model)->NewSequence();
  const auto runs = RunInPieces(**model, {{&sequence, tokens, {}}}, context);
  ASSERT_TRUE(runs.ok()) << runs.status();
  const std::vector<float>& logits = (*runs)[0].logits;
  for (size_t i = 0; i < logits.size(); ++i) {
    ASSERT_NEAR(logits[i], expected.logits[i / 50][i % 50], 5e-5) << "position " << i / 50 << ", token " << i % 50;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReferenceTest, ::testing::ValuesIn(Stacks()),
                         [](const auto& info) { return info.param.name; });

// Weights with some tensors replaced.
class ChangedWeights : public WeightSource {
 public:
  explicit ChangedWeights(const WeightSource& original) : original_(original) {}
  std::string Description() const override { return original_.Description(); }
  std::vector<std::string> Names() const override { return original_.Names(); }
  const TensorView* Find(absl::string_view name) const override {
    const auto found = views_.find(name);
    return found == views_.end() ? original_.Find(name) : &found->second;
  }

  // Repeats each of `heads` equal runs of a tensor's entries along its longest axis `times` times.
  void RepeatHeads(const std::string& name, int64_t heads, int64_t times) {
    const TensorView& from = *original_.Find(name);
    const std::vector<float> values = ReadFloats(from);
    const size_t run = values.size() / heads;
    std::vector<float> repeated;
    for (int64_t i = 0; i < heads * times; ++i) {
      const auto begin = values.begin() + i / times * run;
      repeated.insert(repeated.end(), begin, begin + run);
    }
    Shape shape = from.shape;
    shape[name.find("v_gate0") == std::string::npos ? 0 : 2] *= times;
    tensors_[name] = Tensor::FromFloats(shape, repeated);
    views_[name] = tensors_[name].view();
  }

 private:
  const WeightSource& original_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, TensorView, std::less<>> views_;
};

TEST(GroupedHeadsTest, EqualRepeatedKeyValueHeads) {
  const std::string mixer =
      "block_window { projections { num_heads: 4 rotary_dim: 4 token_shift: true KV } chunk_len: 8 }";
  const StackSpec grouped = Plain("grouped", absl::StrReplaceAll(mixer, {{"KV", "num_kv_heads: 2"}})).spec;
  const StackSpec repeated = Plain("repeated", absl::StrReplaceAll(mixer, {{"KV", ""}})).spec;
  const std::unique_ptr<WeightSource> weights = RandomWeights(grouped, 1);
  ChangedWeights repeated_weights(*weights);
  for (const char* layer : {"0", "1"}) {
    for (const char* name : {"c_k.weight", "c_v.weight", "x_k", "x_v", "v_gate0", "v_gate2.weight"}) {
      repeated_weights.RepeatHeads(absl::StrCat("transformer.h.", layer, ".attn.", name), 2, 2);
    }
  }
  const std::vector<int32_t> tokens = TestTokens(grouped, kTokens, 1);
  const auto logits = [&](const StackSpec& spec, const WeightSource& source) {
    const auto model = LanguageModel::Create(spec, source, {});
    EXPECT_TRUE(model.ok()) << model.status();
    ExecutionContext context(2);
    SequenceState sequence = (*model)->NewSequence();
    const auto runs = RunInPieces(**model, {{&sequence, tokens, {}}}, context);
    EXPECT_TRUE(runs.ok()) << runs.status();
    return (*runs)[0].logits;
  };
  EXPECT_EQ(CountDifferentBits(logits(grouped, *weights), logits(repeated, repeated_weights)), 0);
}

}  // namespace
}  // namespace kvm
