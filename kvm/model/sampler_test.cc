#include "kvm/model/sampler.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace kvm {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// How often each token comes out in `draws` draws.
std::vector<int> Histogram(const SamplerOptions& options, const std::vector<float>& logits, int draws) {
  Sampler sampler(options);
  std::vector<int> counts(logits.size());
  for (int i = 0; i < draws; ++i) ++counts[sampler.Sample(logits)];
  return counts;
}

TEST(SamplerTest, ZeroTemperatureTakesTheLargestAndTheLowestIdOnTies) {
  SamplerOptions options;
  options.temperature = 0;
  Sampler sampler(options);
  EXPECT_EQ(sampler.Sample({1.0f, 3.0f, 2.0f}), 1);
  EXPECT_EQ(sampler.Sample({1.0f, 3.0f, 3.0f}), 1);
  EXPECT_EQ(sampler.Sample({kNan, -kInf, -5.0f}), 2);
  EXPECT_EQ(sampler.Sample({kNan, kInf, -5.0f}), 1);
}

TEST(SamplerTest, FrequenciesFollowTheSoftmax) {
  const std::vector<float> logits = {std::log(1.0f), std::log(2.0f), std::log(5.0f), -kInf};
  const std::vector<int> counts = Histogram({}, logits, 80000);
  // Three standard deviations of a binomial count are below 450.
  EXPECT_NEAR(counts[0], 10000, 450);
  EXPECT_NEAR(counts[1], 20000, 450);
  EXPECT_NEAR(counts[2], 50000, 450);
  EXPECT_EQ(counts[3], 0);
}

TEST(SamplerTest, TemperatureSharpens) {
  SamplerOptions options;
  options.temperature = 0.5;  // squares the odds: 1 : 4
  const std::vector<int> counts = Histogram(options, {std::log(1.0f), std::log(2.0f)}, 50000);
  EXPECT_NEAR(counts[0], 10000, 300);
}

TEST(SamplerTest, AnyTemperatureDrawsOnlyWhatHasAProbability) {
  for (const double temperature : {1e-300, 1e-3, 1e30, 1e39, 1e300}) {
    SamplerOptions options;
    options.temperature = temperature;
    const std::vector<int> counts = Histogram(options, {-kInf, 1.0f, kNan, 2.0f, -kInf}, 200);
    EXPECT_EQ(counts[1] + counts[3], 200) << temperature;
    EXPECT_EQ(counts[1] == 0, temperature < 1) << temperature;
  }
}

TEST(SamplerTest, TopKKeepsTheMostLikely) {
  SamplerOptions options;
  options.top_k = 2;
  const std::vector<int> counts = Histogram(options, {0.0f, 0.1f, 0.2f, 0.3f}, 1000);
  EXPECT_EQ(counts[0], 0);
  EXPECT_EQ(counts[1], 0);
  EXPECT_GT(counts[2], 0);
  EXPECT_GT(counts[3], 0);
}

TEST(SamplerTest, TopPKeepsTheFewestThatReachTheShare) {
  SamplerOptions options;
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  options.top_p = 0.7;
  std::vector<int> counts = Histogram(options, logits, 1000);
  EXPECT_GT(counts[1], 0);
  EXPECT_EQ(counts[2], 0);
  options.top_p = 0.4;
  counts = Histogram(options, logits, 1000);
  EXPECT_EQ(counts[0], 1000);
}

TEST(SamplerTest, MinPIsAShareOfTheBest) {
  SamplerOptions options;
  options.min_p = 0.5;
  const std::vector<int> counts = Histogram(options, {std::log(0.5f), std::log(0.3f), std::log(0.2f)}, 1000);
  EXPECT_GT(counts[0], 0);
  EXPECT_GT(counts[1], 0);
  EXPECT_EQ(counts[2], 0);
}

TEST(SamplerTest, RepetitionPenaltyDividesPositiveAndMultipliesNegativeLogits) {
  SamplerOptions options;
  options.temperature = 0;
  options.repetition_penalty = 2;
  Sampler sampler(options);
  EXPECT_EQ(sampler.Sample({3.0f, 2.0f}), 0);  // 0 has now been seen
  EXPECT_EQ(sampler.Sample({3.0f, 2.0f}), 1);  // 1.5 against 2
  Sampler negative(options);
  negative.Observe(1);
  EXPECT_EQ(negative.Sample({-1.5f, -1.0f}), 0);  // −1.5 against −2
}

TEST(SamplerTest, TheSeedDecides) {
  const std::vector<float> logits(1000, 0.0f);
  SamplerOptions options;
  std::vector<int32_t> first, again, other;
  options.seed = 7;
  Sampler a(options), b(options);
  options.seed = 8;
  Sampler c(options);
  for (int i = 0; i < 20; ++i) {
    first.push_back(a.Sample(logits));
    again.push_back(b.Sample(logits));
    other.push_back(c.Sample(logits));
  }
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
}

TEST(SamplerTest, GoesOnFromItsState) {
  std::vector<float> logits(50);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 7);
  SamplerOptions options;
  options.seed = 7;
  options.repetition_penalty = 1.5;
  Sampler whole(options), first(options);
  std::vector<int32_t> expected, tokens;
  for (int i = 0; i < 20; ++i) expected.push_back(whole.Sample(logits));
  for (int i = 0; i < 8; ++i) tokens.push_back(first.Sample(logits));
  EXPECT_EQ(first.state().draws, 8u);
  EXPECT_EQ(first.state().options.seed, 7u);
  Sampler second(first.state(), tokens);
  for (int i = 8; i < 20; ++i) tokens.push_back(second.Sample(logits));
  EXPECT_EQ(tokens, expected);
}

}  // namespace
}  // namespace kvm
