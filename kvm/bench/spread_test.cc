#include "kvm/bench/spread.h"

#include "gtest/gtest.h"

namespace kvm {
namespace {

TEST(SpreadTest, OddNumbersHaveOneInTheMiddle) {
  const Spread spread = SpreadOf({3, 1, 10});
  EXPECT_EQ(spread.min, 1);
  EXPECT_EQ(spread.median, 3);
  EXPECT_EQ(spread.max, 10);
}

TEST(SpreadTest, EvenNumbersTakeTheMeanOfTwo) { EXPECT_EQ(SpreadOf({8, 1, 2, 4}).median, 3); }

TEST(SpreadTest, OneSampleIsAllThree) {
  const Spread spread = SpreadOf({5});
  EXPECT_EQ(spread.min, 5);
  EXPECT_EQ(spread.median, 5);
  EXPECT_EQ(spread.max, 5);
}

}  // namespace
}  // namespace kvm
