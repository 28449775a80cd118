#include "kvm/model/weights/random_stream.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "gtest/gtest.h"

namespace kvm {
namespace {

constexpr int64_t kDraws = 200000;

TEST(RandomStream, BitsStayTheSame) {
  // Worked out apart from this code: models are reproducible from their seeds for good.
  const RandomStream stream(1, "transformer.wte.weight");
  EXPECT_EQ(stream.Bits(0), 4347261115300646204u);
  EXPECT_EQ(stream.Bits(1000000), 13569758547195331735u);
}

TEST(RandomStream, SeedAndNameMatter) {
  const RandomStream a(1, "a"), again(1, "a"), other_seed(2, "a"), other_name(1, "b");
  EXPECT_EQ(a.Bits(5), again.Bits(5));
  EXPECT_NE(a.Bits(5), other_seed.Bits(5));
  EXPECT_NE(a.Bits(5), other_name.Bits(5));
}

TEST(RandomStream, UniformFillsTheUnitInterval) {
  const RandomStream stream(3, "uniform");
  double sum = 0, lowest = 1, highest = 0;
  for (int64_t i = 0; i < kDraws; ++i) {
    const double x = stream.Uniform(i);
    ASSERT_GE(x, 0);
    ASSERT_LT(x, 1);
    sum += x;
    lowest = std::min(lowest, x);
    highest = std::max(highest, x);
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * 0.2887 / std::sqrt(kDraws));
  EXPECT_LT(lowest, 1e-4);
  EXPECT_GT(highest, 1 - 1e-4);
}

TEST(RandomStream, NormalsHaveTheMomentsOfANormalDistribution) {
  const RandomStream stream(4, "normal");
  double sum = 0, squares = 0, fourths = 0, products = 0;
  int64_t beyond_two = 0;
  for (int64_t i = 0; i < kDraws; ++i) {
    const auto [x, y] = stream.Normals(i);
    products += x * y;
    for (const double z : {x, y}) {
      sum += z;
      squares += z * z;
      fourths += z * z * z * z;
      beyond_two += std::abs(z) > 2 ? 1 : 0;
    }
  }
  const double n = 2.0 * kDraws;
  EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2 / n));
  EXPECT_NEAR(fourths / n, 3, 5 * std::sqrt(96 / n));
  EXPECT_NEAR(products / kDraws, 0, 5 / std::sqrt(kDraws));
  EXPECT_NEAR(static_cast<double>(beyond_two) / n, 0.0455, 5 * std::sqrt(0.0455 / n));
}

}  // namespace
}  // namespace kvm
