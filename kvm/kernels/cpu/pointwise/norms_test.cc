#include "kvm/kernels/cpu/pointwise/norms.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/cpu/vectors/every_target.h"
#include "kvm/kernels/reference/norms.h"

namespace kvm {
namespace {

constexpr int64_t kSizes[] = {1, 2, 3, 7, 16, 17, 31, 64, 100, 768};

std::vector<float> Random(int64_t n, uint32_t seed, float mean = 0) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(mean, 1);
  std::vector<float> values(n);
  for (float& v : values) v = normal(generator);
  return values;
}

// Errors of the sums grow with at most n/2 roundings of terms whose mean is about `magnitude`.
void ExpectNear(const std::vector<float>& got, const std::vector<double>& expected, int64_t n, double magnitude) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], (n / 2 + 8) * 0x1p-24 * (magnitude + std::fabs(expected[i]))) << "element " << i;
  }
}

TEST(LayerNormTest, AgreesWithReferenceOnEveryTarget) {
  for (int64_t n : kSizes) {
    SCOPED_TRACE(n);
    const std::vector<float> x = Random(3 * n, 1, 0.5f), weight = Random(n, 2), bias = Random(n, 3);
    const std::vector<double> expected = reference::Normalize(x, n, weight, bias, kLayerNormEpsilon);
    ForEveryTarget([&] {
      std::vector<float> out(x.size());
      LayerNorm({x.data(), 3, n}, weight, bias, kLayerNormEpsilon, {out.data(), 3, n});
      ExpectNear(out, expected, n, 4);
    });
  }
}

TEST(LayerNormTest, ALargeMeanDoesNotSwampTheVariance) {
  constexpr int64_t kN = 64;
  std::vector<float> x(kN);
  for (int64_t i = 0; i < kN; ++i) x[i] = 4096.0f + (i % 2 == 0 ? 1 : -1);  // mean 4096, variance 1, all exact
  const std::vector<float> weight(kN, 1), bias(kN, 0);
  ForEveryTarget([&] {
    std::vector<float> out(kN);
    LayerNorm({x.data(), 1, kN}, weight, bias, 0, {out.data(), 1, kN});
    for (int64_t i = 0; i < kN; ++i) EXPECT_EQ(out[i], i % 2 == 0 ? 1 : -1);
  });
}

TEST(LayerNormTest, EqualElementsGiveTheBias) {
  const std::vector<float> x(20, 3.0f), weight(20, 2), bias = Random(20, 4);
  ForEveryTarget([&] {
    std::vector<float> out(20);
    LayerNorm({x.data(), 1, 20}, weight, bias, kLayerNormEpsilon, {out.data(), 1, 20});
    EXPECT_EQ(out, bias);
  });
}

TEST(LayerNormTest, ARowsBitsDependOnThatRowAlone) {
  constexpr int64_t kRows = 5, kN = 77, kStride = 80;
  const std::vector<float> x = Random(kRows * kStride, 5), weight = Random(kN, 6), bias = Random(kN, 7);
  ForEveryTarget([&] {
    std::vector<float> all(kRows * kStride, -7);
    LayerNorm({x.data(), kRows, kN, kStride}, weight, bias, kLayerNormEpsilon, {all.data(), kRows, kN, kStride});
    std::vector<float> in_place(x);
    LayerNorm({in_place.data(), kRows, kN, kStride}, weight, bias, kLayerNormEpsilon,
              {in_place.data(), kRows, kN, kStride});
    for (int64_t r = 0; r < kRows; ++r) {
      // At another alignment, too.
      std::vector<float> shifted(kN + 1), alone(kN);
      std::copy_n(&x[r * kStride], kN, &shifted[1]);
      LayerNorm({&shifted[1], 1, kN}, weight, bias, kLayerNormEpsilon, {alone.data(), 1, kN});
      for (int64_t i = 0; i < kN; ++i) {
        EXPECT_EQ(all[r * kStride + i], alone[i]);
        EXPECT_EQ(in_place[r * kStride + i], alone[i]);
      }
      for (int64_t i = kN; i < kStride; ++i) EXPECT_EQ(all[r * kStride + i], -7);
    }
  });
}

TEST(HeadLayerNormTest, HeadsShareWeightAndBias) {
  for (int64_t n : kSizes) {
    SCOPED_TRACE(n);
    const std::vector<float> x = Random(2 * 3 * n, 8), weight = Random(n, 9), bias = Random(n, 10);
    const std::vector<double> expected = reference::Normalize(x, n, weight, bias, kLayerNormEpsilon);
    ForEveryTarget([&] {
      std::vector<float> out(x.size());
      HeadLayerNorm({x.data(), 2, 3 * n}, weight, bias, kLayerNormEpsilon, {out.data(), 2, 3 * n});
      ExpectNear(out, expected, n, 4);
    });
  }
}

TEST(GroupNormTest, EveryColumnHasItsOwnWeightAndBias) {
  for (int64_t n : kSizes) {
    SCOPED_TRACE(n);
    const std::vector<float> x = Random(2 * 3 * n, 11), weight = Random(3 * n, 12), bias = Random(3 * n, 13);
    const std::vector<double> expected = reference::Normalize(x, n, weight, bias, 64e-5f);
    ForEveryTarget([&] {
      std::vector<float> out(x.size());
      GroupNorm({x.data(), 2, 3 * n}, 3, weight, bias, 64e-5f, {out.data(), 2, 3 * n});
      ExpectNear(out, expected, n, 4);
    });
  }
}

TEST(HeadUnitLengthTest, AgreesWithReferenceOnEveryTarget) {
  for (int64_t n : kSizes) {
    SCOPED_TRACE(n);
    const std::vector<float> x = Random(2 * 3 * n, 14);
    const std::vector<double> expected = reference::UnitLength(x, n, 1e-12f);
    ForEveryTarget([&] {
      std::vector<float> out(x.size());
      HeadUnitLength({x.data(), 2, 3 * n}, n, 1e-12f, {out.data(), 2, 3 * n});
      ExpectNear(out, expected, n, 0);
    });
  }
}

TEST(HeadUnitLengthTest, TheFloorKeepsZeroRowsZero) {
  std::vector<float> x = {0, 0, 0, 3, 4, 0};
  ForEveryTarget([&] {
    std::vector<float> out(6);
    HeadUnitLength({x.data(), 1, 6}, 3, 10.0f, {out.data(), 1, 6});
    EXPECT_EQ(out, (std::vector<float>{0, 0, 0, 0.3f, 0.4f, 0}));
  });
}

TEST(HeadSoftUnitLengthTest, AddsTheEpsilonToTheLength) {
  std::vector<float> x = {0, 0, 0, 3, 4, 0, 0, 0, 12, 5, 0, 0};
  ForEveryTarget([&] {
    std::vector<float> out(12);
    HeadSoftUnitLength({x.data(), 2, 6}, 3, 3.0f, {out.data(), 2, 6});
    EXPECT_EQ(out, (std::vector<float>{0, 0, 0, 0.375f, 0.5f, 0, 0, 0, 0.8f, 0.625f, 0, 0}));
  });
}

}  // namespace
}  // namespace kvm
