#include "kvm/state/store/retention.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

std::vector<int64_t> KeptBoundaries(const Retention& retention, int64_t count) {
  std::vector<int64_t> kept;
  for (int64_t b = 0; b <= count; ++b) {
    if (IsKept(retention, b * retention.chunk)) kept.push_back(b);
  }
  return kept;
}

TEST(RetentionTest, FourBoundariesPerDoubling) {
  const Retention retention = {/*chunk=*/10, /*per_doubling=*/4, /*recent=*/0};
  EXPECT_THAT(KeptBoundaries(retention, 64),
              ::testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64));
}

TEST(RetentionTest, OnePerDoublingKeepsPowersOfTwo) {
  EXPECT_THAT(KeptBoundaries({7, 1, 0}, 40), ::testing::ElementsAre(1, 2, 4, 8, 16, 32));
}

TEST(RetentionTest, OnlyMultiplesOfTheChunk) {
  for (int64_t position : {-512, 0, 1, 511, 513, 1023}) EXPECT_FALSE(IsKept({512, 4, 0}, position)) << position;
  EXPECT_TRUE(IsKept({512, 4, 0}, 512));
}

TEST(RetentionTest, AMillionTokensKeepFewAndLittleToReplayEverywhere) {
  constexpr int64_t kTokens = 1 << 20;
  for (int64_t per_doubling : {1, 2, 4, 8, 16}) {
    const Retention retention = {/*chunk=*/512, per_doubling, /*recent=*/0};
    int64_t kept = 0, nearest = 0;
    for (int64_t position = 1; position <= kTokens; ++position) {
      if (IsKept(retention, position)) {
        ++kept;
        nearest = position;
      }
      ASSERT_LT(position - nearest, std::max(retention.chunk, position / per_doubling)) << position;
    }
    EXPECT_GE(kept, 11 * per_doubling / 2);
    EXPECT_LE(kept, 12 * per_doubling);  // 2048 boundaries are 11 doublings
  }
}

TEST(RetentionTest, ImpossibleMembersAreNamed) {
  const auto message = [](const Retention& retention) { return std::string(CheckRetention(retention).message()); };
  EXPECT_TRUE(CheckRetention({}).ok());
  EXPECT_THAT(message({0, 4, 0}), ::testing::HasSubstr("chunk is 0"));
  EXPECT_THAT(message({1, 3, 0}), ::testing::HasSubstr("per_doubling is 3"));
  EXPECT_THAT(message({1, 0, 0}), ::testing::HasSubstr("per_doubling is 0"));
  EXPECT_THAT(message({1, 1, -1}), ::testing::HasSubstr("recent is -1"));
}

}  // namespace
}  // namespace kvm
