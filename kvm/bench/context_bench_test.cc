#include "kvm/bench/context_bench.h"

#include <memory>

#include "gtest/gtest.h"
#include "kvm/model/engine/state_size.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/initializer.h"

namespace kvm {
namespace {

constexpr char kStack[] = R"(
    vocab_size: 50 width: 32
    mixers {
      name: "kvm"
      kvm {
        chunk_len: 8
        projections { num_heads: 2 rotary_dim: 8 }
        budget { growth: POWER_LAW factor: 2 min_rows: 8 max_chunks: 100 }
      }
    }
    layers: ["kvm", "kvm"])";

class ContextBenchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::StatusOr<StackSpec> spec = ParseStackSpec(kStack, "test");
    ASSERT_TRUE(spec.ok()) << spec.status();
    ThreadPool pool(1);
    const std::unique_ptr<WeightSource> weights = InitializeWeights(*spec, {}, pool);
    absl::StatusOr<std::unique_ptr<LanguageModel>> model = LanguageModel::Create(*spec, *weights, {});
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    options_.contexts = {5, 40, 101};
    options_.piece_tokens = 16;
    options_.rounds = 2;
    options_.decode_tokens = 3;
  }

  std::unique_ptr<LanguageModel> model_;
  ContextBenchOptions options_;
  ExecutionContext one_{1}, two_{2};
};

TEST_F(ContextBenchTest, MeasuresAtEveryContextWithAllThreads) {
  const std::vector<BenchModel> models = {{"a", model_.get(), DType::kF32}, {"b", model_.get(), DType::kF32}};
  const auto results = BenchContexts(models, options_, {&one_, &two_}, {});
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->size(), 2u);
  EXPECT_EQ((*results)[1].name, "b");
  for (const ModelResult& result : *results) {
    ASSERT_EQ(result.contexts.size(), 3u);
    EXPECT_EQ(result.contexts[0].piece_tokens, 5);
    EXPECT_EQ(result.contexts[2].piece_tokens, 16);
    for (size_t i = 0; i < 3; ++i) {
      const ContextResult& context = result.contexts[i];
      EXPECT_EQ(context.context, options_.contexts[i]);
      EXPECT_GT(context.read_seconds, i == 0 ? 0 : result.contexts[i - 1].read_seconds);
      const StateSize size = SequenceStateSize(model_->spec(), DType::kF32, context.context);
      EXPECT_EQ(context.rows, size.rows);
      EXPECT_EQ(context.state_bytes, size.bytes);
      EXPECT_GT(context.piece_flop, 0);
      EXPECT_GT(context.token_flop, 0);
      EXPECT_GT(context.token_bytes, 0);
      ASSERT_EQ(context.times.size(), 2u);
      EXPECT_EQ(context.times[0].threads, 1);
      EXPECT_EQ(context.times[1].threads, 2);
      for (const ThreadTimes& times : context.times) {
        EXPECT_GT(times.piece.min, 0);
        EXPECT_GT(times.first_token.min, 0);
        EXPECT_GT(times.token.min, 0);
        EXPECT_LE(times.token.median, times.token.max);
      }
    }
  }
}

TEST_F(ContextBenchTest, EveryPieceOnTheWayIsNoted) {
  const auto results = BenchContexts({{"a", model_.get(), DType::kF32}}, options_, {&one_}, {});
  ASSERT_TRUE(results.ok()) << results.status();
  const ModelResult& result = results->front();
  // To 5; to 24 and on to 40; to 85 and on to 101.
  std::vector<double> ends;
  for (const XY& total : result.total_seconds) ends.push_back(total.x);
  EXPECT_EQ(ends, (std::vector<double>{5, 21, 24, 40, 56, 72, 85, 101}));
  ends.clear();
  for (const XY& piece : result.piece_seconds) ends.push_back(piece.x);
  EXPECT_EQ(ends, (std::vector<double>{21, 40, 56, 72, 101}));
  EXPECT_EQ(result.total_seconds.back().y, result.contexts.back().read_seconds);
}

TEST_F(ContextBenchTest, ContextsMayLieCloserThanPieces) {
  options_.contexts = {20, 24};
  const auto results = BenchContexts({{"a", model_.get(), DType::kF32}}, options_, {&one_}, {});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(results->front().contexts[0].piece_tokens, 16);
  EXPECT_EQ(results->front().contexts[1].piece_tokens, 4);
}

TEST_F(ContextBenchTest, StopsWhenAsked) {
  int asked = 0;
  BenchHooks hooks;
  hooks.cancelled = [&] { return ++asked == 6; };
  const auto results = BenchContexts({{"a", model_.get(), DType::kF32}}, options_, {&one_}, hooks);
  EXPECT_EQ(results.status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace kvm
