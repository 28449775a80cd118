#include "kvm/bench/power_law.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace kvm {
namespace {

TEST(PowerLawTest, FindsTheExponentOfAPowerLaw) {
  std::vector<XY> points;
  for (double x = 1; x < 1000; x *= 1.7) points.push_back({x, 3 * std::pow(x, 1.5)});
  EXPECT_NEAR(FitExponent(points).value(), 1.5, 1e-12);
}

// (0, 0), (1, 1), (2, 1) in logarithms: slope 1/2.
TEST(PowerLawTest, FitsByLeastSquares) {
  const std::vector<XY> points = {{1, 1}, {std::exp(1), std::exp(1)}, {std::exp(2), std::exp(1)}};
  EXPECT_NEAR(FitExponent(points).value(), 0.5, 1e-12);
}

TEST(PowerLawTest, OnePlaceHasNone) {
  EXPECT_EQ(FitExponent(std::vector<XY>{{2, 3}}), std::nullopt);
  EXPECT_EQ(FitExponent(std::vector<XY>{{2, 3}, {2, 4}}), std::nullopt);
  EXPECT_EQ(FitExponent({}), std::nullopt);
}

}  // namespace
}  // namespace kvm
