#include "kvm/model/generator.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/initializer.h"

namespace kvm {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Lt;

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
    layers: ["kvm", "kvm"])";

class GeneratorTest : public ::testing::Test {
 protected:
  GeneratorTest() : context_(1) {
    const StackSpec spec = ParseStackSpec(kStack, "kStack").value();
    InitializerOptions options;
    options.block_output_gain = 1;
    model_ = LanguageModel::Create(spec, *InitializeWeights(spec, options, context_.pool), {}).value();
    options_.sampler = SamplerOptions();
    options_.sampler->temperature = 0;
    options_.max_tokens = 30;
  }

  absl::StatusOr<GeneratorStats> Run(const std::vector<int32_t>& prompt) {
    session_ = Session{model_->NewSequence(), {}, {}, std::nullopt};
    return GoOn(prompt);
  }

  absl::StatusOr<GeneratorStats> GoOn(const std::vector<int32_t>& prompt) {
    tokens_.clear();
    return Generate(*model_, session_, prompt, options_, context_, [&](int32_t token) {
      tokens_.push_back(token);
      return static_cast<int64_t>(tokens_.size()) < stop_after_;
    });
  }

  std::string ErrorOf(const std::vector<int32_t>& prompt) { return std::string(Run(prompt).status().message()); }

  ExecutionContext context_;
  std::unique_ptr<LanguageModel> model_;
  GeneratorOptions options_;
  Session session_;
  std::vector<int32_t> tokens_;
  int64_t stop_after_ = 1000;
};

TEST_F(GeneratorTest, GreedyTokensAreTheArgmaxOfTheWholeSequence) {
  std::vector<int32_t> text = {1, 2, 3, 4, 5};
  const absl::StatusOr<GeneratorStats> stats = Run(text);
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_EQ(stats->prompt_tokens, 5);
  EXPECT_EQ(stats->generated_tokens, 30);
  ASSERT_EQ(tokens_.size(), 30u);
  EXPECT_EQ(session_.state.position(), 5 + 30);

  for (const int32_t token : tokens_) {
    SequenceState sequence = model_->NewSequence();
    std::vector<float> logits(model_->vocab_size());
    ASSERT_TRUE(
        model_->Extend({{&sequence, text, MatrixView<float>(logits.data(), 1, model_->vocab_size())}}, context_).ok());
    ASSERT_EQ(token, std::max_element(logits.begin(), logits.end()) - logits.begin());
    text.push_back(token);
  }
}

TEST_F(GeneratorTest, LongPromptsAreTakenInPiecesAndReported) {
  std::vector<int32_t> prompt(1100);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * i % 40);
  std::vector<int64_t> reports;
  options_.on_prompt = [&](int64_t done) {
    reports.push_back(done);
    return true;
  };
  ASSERT_TRUE(Run(prompt).ok());
  EXPECT_GT(reports.size(), 1u);
  EXPECT_EQ(reports.back(), 1100);
  options_.on_prompt = [](int64_t) { return false; };
  EXPECT_EQ(Run(prompt).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(GeneratorTest, PiecesEndAtTheSamePositionsWhateverCameBefore) {
  std::vector<int32_t> prompt(1100, 7);
  std::vector<int64_t> positions;
  options_.max_tokens = 0;
  options_.on_prompt = [&](int64_t) {
    positions.push_back(session_.state.position());
    EXPECT_EQ(static_cast<int64_t>(session_.tokens.size()), session_.state.position());
    EXPECT_EQ(static_cast<int64_t>(session_.logits.size()), model_->vocab_size());
    return true;
  };
  ASSERT_TRUE(Run(prompt).ok());
  ASSERT_TRUE(GoOn(prompt).ok());
  EXPECT_THAT(positions, ElementsAre(512, 1024, 1100, 1536, 2048, 2200));
}

// The logits that a session holds, computed anew from its tokens.
TEST_F(GeneratorTest, TheSessionHoldsAllTokensAndTheLogitsThatFollow) {
  for (const int64_t stop_after : {3, 1000}) {
    stop_after_ = stop_after;
    ASSERT_TRUE(Run({1, 2, 3}).ok());
    std::vector<int32_t> expected = {1, 2, 3};
    expected.insert(expected.end(), tokens_.begin(), tokens_.end());
    EXPECT_EQ(session_.tokens, expected);
    EXPECT_EQ(session_.state.position(), static_cast<int64_t>(expected.size()));
    SequenceState sequence = model_->NewSequence();
    std::vector<float> logits(model_->vocab_size());
    const MatrixView<float> row(logits.data(), 1, model_->vocab_size());
    ASSERT_TRUE(model_->Extend({{&sequence, expected, row}}, context_).ok());
    EXPECT_EQ(session_.logits, logits);
  }
}

TEST_F(GeneratorTest, GoesOnAsIfItHadNeverStopped) {
  options_.sampler->temperature = 1.5;
  options_.sampler->repetition_penalty = 1.3;
  options_.sampler->seed = 9;
  options_.max_tokens = 40;
  ASSERT_TRUE(Run({1, 2, 3}).ok());
  const std::vector<int32_t> all = session_.tokens;
  const std::vector<float> logits = session_.logits;
  EXPECT_EQ(session_.sampler->draws, 40u);
  for (const int first : {0, 1, 15, 39, 40}) {
    GeneratorOptions options = options_;
    options_.max_tokens = first;
    ASSERT_TRUE(Run({1, 2, 3}).ok());
    options_.sampler.reset();  // the session's
    options_.max_tokens = 40 - first;
    ASSERT_TRUE(GoOn({}).ok());
    EXPECT_EQ(session_.tokens, all);
    EXPECT_EQ(session_.logits, logits);
    options_ = options;
  }
}

TEST_F(GeneratorTest, OptionsOverrideTheSessionsSampler) {
  options_.sampler->temperature = 1;
  options_.max_tokens = 10;
  ASSERT_TRUE(Run({1, 2, 3}).ok());
  options_.sampler->temperature = 0;
  ASSERT_TRUE(GoOn({4}).ok());
  EXPECT_EQ(session_.sampler->options.temperature, 0);
  EXPECT_EQ(session_.sampler->draws, 0u);
  EXPECT_EQ(session_.tokens.size(), 3u + 10 + 1 + 10);
}

TEST_F(GeneratorTest, ACancelledPromptLeavesAWholeSession) {
  std::vector<int32_t> prompt(1100, 7);
  options_.on_prompt = [](int64_t) { return false; };
  ASSERT_FALSE(Run(prompt).ok());
  EXPECT_EQ(session_.tokens.size(), 512u);
  options_.on_prompt = nullptr;
  ASSERT_TRUE(GoOn(std::vector<int32_t>(588, 7)).ok());
  const std::vector<float> logits = session_.logits;
  ASSERT_TRUE(Run(prompt).ok());
  EXPECT_EQ(session_.logits, logits);
}

TEST_F(GeneratorTest, EndsBeforeTheEndToken) {
  ASSERT_TRUE(Run({1, 2, 3}).ok());
  const std::vector<int32_t> all = tokens_;
  options_.end_tokens = {-1, all[3], 1 << 30};
  const size_t first = std::find(all.begin(), all.end(), all[3]) - all.begin();
  ASSERT_TRUE(Run({1, 2, 3}).ok());
  EXPECT_EQ(tokens_, std::vector<int32_t>(all.begin(), all.begin() + first));
  EXPECT_EQ(session_.state.position(), static_cast<int64_t>(3 + first));
  ASSERT_TRUE(GoOn({}).ok());  // the same draw again
  EXPECT_TRUE(tokens_.empty());
}

TEST_F(GeneratorTest, EndsWhenTheCallerHasEnough) {
  stop_after_ = 4;
  ASSERT_TRUE(Run({1, 2, 3}).ok());
  EXPECT_EQ(tokens_.size(), 4u);
  stop_after_ = 1000;
  options_.max_tokens = 0;
  ASSERT_TRUE(Run({1, 2, 3}).ok());
  EXPECT_EQ(tokens_.size(), 0u);
}

TEST_F(GeneratorTest, NeverDrawsPaddingOfTheVocabulary) {
  options_.sampler->temperature = 100;
  options_.num_drawable = 3;
  options_.max_tokens = 200;
  ASSERT_TRUE(Run({1}).ok());
  EXPECT_THAT(tokens_, Each(Lt(3)));
}

TEST_F(GeneratorTest, ASessionWithoutLogitsGoesOnWithAPromptAlone) {
  ASSERT_TRUE(Run({1, 2}).ok());
  session_.logits.clear();
  EXPECT_THAT(std::string(GoOn({}).status().message()), HasSubstr("the session has no logits"));
  EXPECT_TRUE(GoOn({3}).ok());
}

TEST_F(GeneratorTest, RefusesBadArguments) {
  EXPECT_THAT(ErrorOf({}), HasSubstr("the prompt has no tokens"));
  EXPECT_EQ(ErrorOf({1, 40}), "prompt token 1 is 40; expected 0 to 39, the model's vocabulary");
  EXPECT_EQ(ErrorOf({-1}), "prompt token 0 is -1; expected 0 to 39, the model's vocabulary");
  options_.num_drawable = 41;
  EXPECT_THAT(ErrorOf({1}), HasSubstr("num_drawable is 41"));
  options_.num_drawable = 0;
  options_.max_tokens = -1;
  EXPECT_THAT(ErrorOf({1}), HasSubstr("max_tokens is -1"));
  options_.sampler->top_p = 2;
  EXPECT_THAT(ErrorOf({1}), HasSubstr("top_p is 2"));
}

TEST_F(GeneratorTest, RefusesSessionsThatAreNotTheModels) {
  const auto error = [&] { return std::string(GoOn({1}).status().message()); };
  ASSERT_TRUE(Run({1, 2, 3}).ok());
  session_.tokens[1] = 40;
  EXPECT_EQ(error(), "session token 1 is 40; expected 0 to 39, the model's vocabulary");
  session_.tokens.pop_back();
  EXPECT_EQ(error(), "the session has 32 tokens; expected the 33 that its state has taken in");
  ASSERT_TRUE(Run({1, 2, 3}).ok());
  session_.logits.pop_back();
  EXPECT_EQ(error(), "the session has 39 logits; expected 40, the model's vocabulary");
  session_ = Session();
  EXPECT_THAT(error(), HasSubstr("not made by this model's NewSequence()"));
  EXPECT_TRUE(session_.tokens.empty() && session_.logits.empty());
}

}  // namespace
}  // namespace kvm
