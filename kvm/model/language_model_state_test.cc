// The dtype of a model's states, ModelOptions::state.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/model/engine/state_size.h"
#include "kvm/model/language_model.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/initializer.h"

namespace kvm {
namespace {

constexpr int64_t kVocab = 40;

constexpr char kStack[] = R"(
    vocab_size: 40 width: 32
    mixers {
      name: "kvm"
      kvm {
        projections { num_heads: 2 rotary_dim: 8 token_shift: true }
        chunk_len: 8
        budget { growth: POWER_LAW factor: 2 max_chunks: 100 }
      }
    }
    mixers { name: "window" attention { projections { num_heads: 2 rotary_dim: 8 } window: 12 } }
    mixers { name: "rwkv7" rwkv7 { num_heads: 2 } }
    layers: ["kvm", "window", "rwkv7", "kvm"])";

class ModelStateTest : public ::testing::Test {
 protected:
  ModelStateTest() : context_(2), spec_(ParseStackSpec(kStack, "kStack").value()) {
    InitializerOptions options;
    options.block_output_gain = 1;
    weights_ = InitializeWeights(spec_, options, context_.pool);
  }

  absl::StatusOr<std::unique_ptr<LanguageModel>> Create(DType state) const {
    ModelOptions options;
    options.state = state;
    return LanguageModel::Create(spec_, *weights_, options);
  }

  // The logits of 50 tokens taken `piece` at a time. Sizes are as predicted all along.
  std::vector<float> Logits(DType state, int64_t piece) {
    const std::unique_ptr<LanguageModel> model = Create(state).value();
    SequenceState sequence = model->NewSequence();
    std::vector<int32_t> tokens(50);
    for (size_t t = 0; t < tokens.size(); ++t) tokens[t] = static_cast<int32_t>(t * t * 7 % kVocab);
    std::vector<float> logits(50 * kVocab);
    for (int64_t t = 0; t < 50; t += piece) {
      const int64_t count = std::min<int64_t>(piece, 50 - t);
      const MatrixView<float> rows(logits.data() + t * kVocab, count, kVocab);
      EXPECT_TRUE(model->Extend({{&sequence, absl::MakeSpan(tokens).subspan(t, count), rows}}, context_).ok());
      EXPECT_EQ(sequence.ByteSize(), SequenceStateSize(spec_, state, t + count).bytes);
    }
    return logits;
  }

  ExecutionContext context_;
  StackSpec spec_;
  std::unique_ptr<WeightSource> weights_;
};

TEST_F(ModelStateTest, IntegerRowsComeNearTheOthersAndKeepBitsInPieces) {
  const std::vector<float> exact = Logits(DType::kF32, 50), halves = Logits(DType::kBF16, 50);
  const std::vector<float> integers = Logits(DType::kI8, 50);
  for (int64_t piece : {1, 7}) EXPECT_EQ(Logits(DType::kI8, piece), integers);
  double largest = 0, error_of_halves = 0, error_of_integers = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    largest = std::max<double>(largest, std::abs(exact[i]));
    error_of_halves = std::max<double>(error_of_halves, std::abs(halves[i] - exact[i]));
    error_of_integers = std::max<double>(error_of_integers, std::abs(integers[i] - exact[i]));
  }
  EXPECT_NE(integers, halves);
  EXPECT_LT(error_of_halves, 0.05 * largest);
  EXPECT_LT(error_of_integers, 0.05 * largest);
}

TEST_F(ModelStateTest, StatesWithAndWithoutProvenanceAreNotMixed) {
  ModelOptions options;
  options.provenance = true;
  const std::unique_ptr<LanguageModel> with = LanguageModel::Create(spec_, *weights_, options).value();
  const std::unique_ptr<LanguageModel> without = Create(DType::kF32).value();
  SequenceState state_with = with->NewSequence(), state_without = without->NewSequence();
  const std::vector<int32_t> tokens = {1, 2};
  EXPECT_TRUE(with->Extend({{&state_with, tokens, {}}}, context_).ok());
  EXPECT_EQ(with->Extend({{&state_without, tokens, {}}}, context_).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(without->Extend({{&state_with, tokens, {}}}, context_).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(without->Extend({{&state_without, tokens, {}}}, context_).ok());
}

TEST_F(ModelStateTest, OtherTypesAreRefused) {
  for (DType state : {DType::kF16, DType::kU8, DType::kF64}) {
    const absl::Status status = Create(state).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("state dtype"));
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(std::string(Name(state))));
  }
}

}  // namespace
}  // namespace kvm
