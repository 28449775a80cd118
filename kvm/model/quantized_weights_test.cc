#include "kvm/model/weights/quantized_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/kernels/int8_panels.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/language_model.h"
#include "kvm/model/stack/model_options.h"
#include "kvm/model/stack/stack_spec.h"
#include "testing/conformance/model_runs.h"
#include "testing/conformance/random_weights.h"
#include "testing/conformance/test_stacks.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

// Copies of a source's tensors, which a test may change; their memory does not last.
class CopiedWeights : public WeightSource {
 public:
  explicit CopiedWeights(const WeightSource& source) {
    for (const std::string& name : source.Names()) {
      tensors_[name] = Tensor::FromFloats(source.Find(name)->shape, ReadFloats(*source.Find(name)));
      views_[name] = tensors_[name].view();
    }
  }
  absl::Span<float> Floats(const std::string& name) { return tensors_.at(name).floats(); }

  std::string Description() const override { return "a copy"; }
  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& entry : views_) names.push_back(entry.first);
    return names;
  }
  const TensorView* Find(absl::string_view name) const override {
    const auto found = views_.find(name);
    return found == views_.end() ? nullptr : &found->second;
  }

 private:
  std::map<std::string, Tensor, std::less<>> tensors_;
  std::map<std::string, TensorView, std::less<>> views_;
};

std::vector<float> Logits(const LanguageModel& model, const TestStack& stack, std::vector<int64_t> pieces,
                          int num_threads) {
  ExecutionContext context(num_threads, /*oversubscribe=*/true);
  SequenceState sequence = model.NewSequence();
  const std::vector<int32_t> tokens = TestTokens(stack.spec, stack.num_tokens, 5);
  const auto runs = RunInPieces(model, {{&sequence, tokens, std::move(pieces)}}, context);
  EXPECT_TRUE(runs.ok()) << runs.status();
  return (*runs)[0].logits;
}

std::unique_ptr<LanguageModel> Create(const StackSpec& spec, const WeightSource& weights, WeightType type) {
  ModelOptions options;
  options.weights = type;
  absl::StatusOr<std::unique_ptr<LanguageModel>> model = LanguageModel::Create(spec, weights, options);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

TEST(QuantizedWeightsTest, MatricesBecomeInt8AndSmallOnesDoNot) {
  const StackSpec spec = ParseStackSpec(R"(
      vocab_size: 512 width: 256
      mixers { name: "kvm" kvm { projections { num_heads: 4 rotary_dim: 16 token_shift: true } } }
      mixers { name: "rwkv7" rwkv7 { num_heads: 4 } }
      layers: ["kvm", "rwkv7"])",
                                        "test")
                             .value();
  const auto becomes = [&](const std::string& name, Shape shape) {
    return BecomesInt8(spec, name, {DType::kBF16, std::move(shape)});
  };
  EXPECT_TRUE(becomes("transformer.wte.weight", {512, 256}));
  EXPECT_TRUE(becomes("lm_head.weight", {512, 256}));
  EXPECT_TRUE(becomes("transformer.h.0.mlp.c_fc.weight", {1024, 256}));
  EXPECT_TRUE(becomes("transformer.h.0.attn.c_k.weight", {32, 256}));
  EXPECT_FALSE(becomes("transformer.h.0.attn.key_weighting.weight", {4, 256}));
  EXPECT_FALSE(becomes("transformer.h.1.attn.w2.weight", {256, 31}));
  EXPECT_FALSE(becomes("transformer.h.1.attn.r_k", {256, 256}));
  EXPECT_FALSE(becomes("transformer.ln_emb.weight", {256}));
  EXPECT_FALSE(becomes("transformer.h.0.attn.q_conv1d.weight", {256, 1, 256}));
}

// Every stack: the quantized source gives the numbers of the header's formula, and a model that keeps its weights as
// int8 is, to the bit, the float32 model of these numbers: one token at a time, in batches, with any threads.
TEST(QuantizedWeightsTest, ModelsAreThoseOfTheRoundedNumbers) {
  for (const TestStack& stack : TestStacks()) {
    SCOPED_TRACE(stack.name);
    const std::unique_ptr<WeightSource> weights = RandomWeights(stack.spec, stack.seed);
    const auto quantized = QuantizeWeights(stack.spec, *weights);
    ASSERT_TRUE(quantized.ok()) << quantized.status();
    EXPECT_EQ((*quantized)->Names(), weights->Names());
    int num_matrices = 0;
    for (const std::string& name : weights->Names()) {
      const TensorView& tensor = *weights->Find(name);
      const TensorView& rounded = *(*quantized)->Find(name);
      ASSERT_EQ(rounded.shape, tensor.shape) << name;
      ASSERT_EQ(rounded.dtype, DType::kF32) << name;
      const std::vector<float> before = ReadFloats(tensor), after = ReadFloats(rounded);
      if (!BecomesInt8(stack.spec, name, {tensor.dtype, tensor.shape})) {
        EXPECT_EQ(before, after) << name;
        EXPECT_EQ((*quantized)->FindPanels(name), nullptr) << name;
        continue;
      }
      ++num_matrices;
      ASSERT_NE((*quantized)->FindPanels(name), nullptr) << name;
      EXPECT_EQ((*quantized)->FindPanels(name)->storage, DType::kI8);
      float largest = 0, error = 0;
      for (const float w : before) largest = std::max(largest, std::abs(w));
      for (size_t i = 0; i < before.size(); ++i) error = std::max(error, std::abs(before[i] - after[i]));
      EXPECT_GT(error, 0) << name;
      EXPECT_LE(error, largest / 253) << name;
    }
    EXPECT_GT(num_matrices, 2);
    const auto rounded_model = Create(stack.spec, CopiedWeights(**quantized), WeightType::kF32);
    const auto model = Create(stack.spec, *weights, WeightType::kI8);
    const std::vector<float> expected = Logits(*rounded_model, stack, {}, 1);
    EXPECT_EQ(CountDifferentBits(Logits(*model, stack, {}, 2), expected), 0);
    EXPECT_EQ(CountDifferentBits(Logits(*model, stack, {9, 1}, 1), expected), 0);
    EXPECT_LT(model->WeightByteSize(), rounded_model->WeightByteSize());
  }
}

// The source may go away before the model does, whether or not its memory lasts.
TEST(QuantizedWeightsTest, ModelsOutliveTheirSource) {
  const TestStack stack = TestStacks()[0];
  auto weights = std::make_unique<CopiedWeights>(*RandomWeights(stack.spec, stack.seed));
  const auto model = Create(stack.spec, *weights, WeightType::kI8);
  const std::vector<float> expected = Logits(*model, stack, {}, 1);
  for (const std::string& name : weights->Names()) std::memset(weights->Floats(name).data(), 0xff, 4);
  weights.reset();
  EXPECT_EQ(CountDifferentBits(Logits(*model, stack, {}, 1), expected), 0);
}

TEST(QuantizedWeightsTest, ATiedEmbeddingIsThereOnce) {
  TestStack stack = TestStacks()[0];
  const auto untied = Create(stack.spec, *RandomWeights(stack.spec, 1), WeightType::kI8);
  stack.spec.set_tied_head(true);
  const std::unique_ptr<WeightSource> weights = RandomWeights(stack.spec, 1);
  const auto tied = Create(stack.spec, *weights, WeightType::kI8);
  const auto quantized = QuantizeWeights(stack.spec, *weights);
  ASSERT_TRUE(quantized.ok());
  const int64_t embedding = (*quantized)->FindPanels("transformer.wte.weight")->byte_size();
  EXPECT_EQ(untied->WeightByteSize() - tied->WeightByteSize(), embedding);
}

TEST(QuantizedWeightsTest, RefusesNumbersThatAreNone) {
  const TestStack stack = TestStacks()[0];
  const std::unique_ptr<WeightSource> weights = RandomWeights(stack.spec, stack.seed);
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    CopiedWeights damaged(*weights);
    damaged.Floats("lm_head.weight")[stack.spec.width() * 3 + 1] = bad;
    ModelOptions options;
    options.weights = WeightType::kI8;
    const absl::Status status = LanguageModel::Create(stack.spec, damaged, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("a copy: lm_head.weight: "));
    EXPECT_THAT(std::string(status.message()), HasSubstr("in row 3; int8 weights need finite numbers"));
  }
  // What stays as it is may hold anything, as before.
  CopiedWeights odd(*weights);
  odd.Floats("transformer.ln_emb.bias")[0] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(QuantizeWeights(stack.spec, odd).ok());
}

}  // namespace
}  // namespace kvm
