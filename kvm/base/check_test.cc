#include "kvm/base/check.h"

#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace kvm {
namespace {

constexpr int64_t kLow = std::numeric_limits<int64_t>::min();
constexpr int64_t kHigh = std::numeric_limits<int64_t>::max();

// Calls as a kernel makes them: the function's name is part of the message.
void Needs(bool ok) { Check(ok, "out to be apart from x"); }
void NeedsSix(int64_t columns) { CheckEq(columns, 6, "x.cols"); }
void NeedsAtLeast(int64_t rows, int64_t least) { CheckAtLeast(rows, least, "rows"); }
void NeedsAtMost(int64_t rows, int64_t most) { CheckAtMost(rows, most, "rows"); }
void NeedsBetween(int64_t row, int64_t low, int64_t high) { CheckBetween(row, low, high, "row"); }

void CheckShape(int64_t columns, CallSite site = CallSite::Here()) { CheckEq(columns, 6, "x.cols", site); }
void NeedsShape(int64_t columns) { CheckShape(columns); }

class Pool {
 public:
  explicit Pool(int threads) { CheckAtLeast(threads, 1, "threads"); }
};

TEST(CheckTest, WhatHoldsPasses) {
  Needs(true);
  NeedsSix(6);
  NeedsAtLeast(1, 1);
  NeedsAtLeast(kHigh, kHigh);
  NeedsAtMost(1, 1);
  NeedsAtMost(kLow, kLow);
  NeedsBetween(0, 0, 0);
  NeedsBetween(kHigh, kLow, kHigh);
  NeedsBetween(kLow, kLow, kHigh);
}

TEST(CheckDeathTest, SaysWhichCallWhatItGotAndWhatItExpected) {
  EXPECT_DEATH(Needs(false), "^Needs: expected out to be apart from x \\(.*check_test\\.cc:[0-9]+\\)");
  EXPECT_DEATH(NeedsSix(5), "^NeedsSix: x\\.cols is 5, expected 6 \\(.*check_test\\.cc:[0-9]+\\)");
  EXPECT_DEATH(NeedsAtLeast(0, 1), "^NeedsAtLeast: rows is 0, expected at least 1 \\(");
  EXPECT_DEATH(NeedsAtMost(9, 8), "^NeedsAtMost: rows is 9, expected at most 8 \\(");
  EXPECT_DEATH(NeedsBetween(8, 0, 7), "^NeedsBetween: row is 8, expected 0 to 7 \\(");
  EXPECT_DEATH(NeedsBetween(-1, 0, 7), "^NeedsBetween: row is -1, expected 0 to 7 \\(");
}

TEST(CheckDeathTest, NumbersAreWhole) {
  EXPECT_DEATH(NeedsSix(kHigh), "x\\.cols is 9223372036854775807, expected 6");
  EXPECT_DEATH(NeedsSix(kLow), "x\\.cols is -9223372036854775808, expected 6");
}

TEST(CheckDeathTest, AConstructorIsNamed) { EXPECT_DEATH(Pool(0), "^Pool: threads is 0, expected at least 1"); }

TEST(CheckDeathTest, AHandedOnPlaceIsTheCallers) {
  EXPECT_DEATH(NeedsShape(7), "^NeedsShape: x\\.cols is 7, expected 6");
}

}  // namespace
}  // namespace kvm
