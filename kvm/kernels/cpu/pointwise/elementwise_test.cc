#include "kvm/kernels/cpu/pointwise/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/cpu/vectors/every_target.h"
#include "kvm/kernels/reference/elementwise.h"

namespace kvm {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> Random(int64_t n, uint32_t seed, float deviation = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(n);
  for (float& v : values) v = normal(generator);
  return values;
}

// Near zero, ordinary, and beyond where exp overflows or underflows.
std::vector<float> Arguments() {
  std::vector<float> values = Random(1000, 1, 3);
  for (float x = -120; x <= 120; x += 0.37f) values.push_back(x);
  for (float x : {0.0f, 1e-30f, 1e-7f, 1e-3f, 0.3f, 88.7f, 89.0f, 103.9f, 104.1f, 1e4f, 3e38f, kInfinity}) {
    values.push_back(x);
    values.push_back(-x);
  }
  return values;
}

// `ulps` units in the last place, or that many of the smallest subnormals.
void ExpectUlps(float got, double expected, double ulps, float argument) {
  if (std::fabs(expected) > std::numeric_limits<float>::max()) {
    EXPECT_EQ(got, std::copysign(kInfinity, expected)) << "at " << argument;
  } else {
    EXPECT_NEAR(got, expected, ulps * (std::fabs(expected) * 0x1p-23 + 0x1p-149)) << "at " << argument;
  }
}

struct Function {
  std::string name;
  std::function<void(MatrixView<float>)> kernel;
  std::function<double(double)> reference;
  double ulps;
};

std::vector<Function> Functions() {
  return {
      {"ReluSquared", ReluSquared, [](double x) { return x > 0 ? x * x : 0.0; }, 1},
      {"Tanh", Tanh, [](double x) { return std::tanh(x); }, 6},
      {"Sigmoid", Sigmoid, reference::Sigmoid, 4},
      {"OnePlusElu", OnePlusElu, reference::OnePlusElu, 3},
      {"SoftCap", [](MatrixView<float> y) { SoftCap(y, 15.0f); }, [](double x) { return reference::SoftCap(x, 15); },
       8},
  };
}

TEST(ElementwiseTest, FunctionsAreAccurateAndFiniteForEveryArgument) {
  const std::vector<float> arguments = Arguments();
  const int64_t n = static_cast<int64_t>(arguments.size());
  for (const Function& function : Functions()) {
    SCOPED_TRACE(function.name);
    ForEveryTarget([&] {
      std::vector<float> y(arguments);
      function.kernel({y.data(), 1, n});
      for (int64_t i = 0; i < n; ++i) ExpectUlps(y[i], function.reference(arguments[i]), function.ulps, arguments[i]);
    });
  }
}

// Apart from the other functions, as it multiplies the rounding of subnormal σ.
TEST(ElementwiseTest, SiluIsAccurateAndHasItsLimits) {
  ForEveryTarget([] {
    const std::vector<float> arguments = Arguments();
    std::vector<float> y(arguments);
    Silu({y.data(), 1, static_cast<int64_t>(y.size())});
    for (size_t i = 0; i < y.size(); ++i) {
      const double expected = reference::Silu(arguments[i]);
      if (std::isinf(arguments[i])) {
        EXPECT_EQ(y[i], expected) << arguments[i];
      } else {
        EXPECT_NEAR(y[i], expected, 5 * std::fabs(expected) * 0x1p-23 + 1e-42) << arguments[i];
      }
    }
    std::vector<float> nan = {std::numeric_limits<float>::quiet_NaN()};
    Silu({nan.data(), 1, 1});
    EXPECT_TRUE(std::isnan(nan[0]));
  });
}

TEST(SoftmaxWeightsTest, AreExponentialsOfDistancesFromTheLargest) {
  const std::vector<float> logits = Arguments();
  ForEveryTarget([&] {
    for (float temperature : {0.7f, 1.0f, 20.0f}) {
      std::vector<float> y(logits);
      SoftmaxWeights({y.data(), 1, static_cast<int64_t>(y.size())}, 1e4f, temperature);
      for (size_t i = 0; i < y.size(); ++i) {
        if (logits[i] > 1e4f) continue;
        const double exponent = (double{logits[i]} - 1e4) / temperature;
        const double rounding = std::isinf(exponent) ? 0 : 2 * std::fabs(exponent);
        ExpectUlps(y[i], std::exp(exponent), 3 + rounding, logits[i]);
      }
    }
  });
}

TEST(SoftmaxWeightsTest, TheLargestCountsOne) {
  ForEveryTarget([&] {
    std::vector<float> infinite = {1, kInfinity, -kInfinity};
    SoftmaxWeights({infinite.data(), 1, 3}, kInfinity, 1);
    EXPECT_EQ(infinite, std::vector<float>({0, 1, 0}));
    std::vector<float> frozen = {3, 2.999f, -kInfinity, 3};
    SoftmaxWeights({frozen.data(), 1, 4}, 3, 0);
    EXPECT_EQ(frozen, std::vector<float>({1, 0, 0, 1}));
  });
}

TEST(SoftmaxWeightsTest, NanStaysNan) {
  ForEveryTarget([&] {
    std::vector<float> y = {1, std::numeric_limits<float>::quiet_NaN(), 3};
    SoftmaxWeights({y.data(), 1, 3}, 3, 1);
    EXPECT_NEAR(y[0], std::exp(-2.0), 1e-7);
    EXPECT_TRUE(std::isnan(y[1]));
    EXPECT_EQ(y[2], 1);
  });
}

TEST(ElementwiseTest, NanStaysNan) {
  for (const Function& function : Functions()) {
    SCOPED_TRACE(function.name);
    ForEveryTarget([&] {
      std::vector<float> y(19, 0.5f);
      y[3] = y[18] = std::numeric_limits<float>::quiet_NaN();
      function.kernel({y.data(), 1, 19});
      for (int i = 0; i < 19; ++i) EXPECT_EQ(std::isnan(y[i]), i == 3 || i == 18) << i;
    });
  }
}

TEST(ElementwiseTest, AnElementsBitsDoNotDependOnItsPlace) {
  const std::vector<float> arguments = Random(67, 2, 2);
  for (const Function& function : Functions()) {
    SCOPED_TRACE(function.name);
    ForEveryTarget([&] {
      std::vector<float> row(arguments), column(arguments);
      function.kernel({row.data(), 1, 67});
      function.kernel({column.data(), 67, 1});
      EXPECT_EQ(row, column);
    });
  }
}

TEST(ElementwiseTest, OnlyTheMatrixIsWritten) {
  constexpr int64_t kRows = 3, kCols = 5, kStride = 9;
  ForEveryTarget([&] {
    std::vector<float> y(kRows * kStride, -1.0f);
    ReluSquared({y.data(), kRows, kCols, kStride});
    for (int64_t i = 0; i < kRows * kStride; ++i) EXPECT_EQ(y[i], i % kStride < kCols ? 0.0f : -1.0f) << i;
  });
}

// Sums and products of matrices: small integers, so that results are exact.
TEST(ElementwiseTest, MatricesAreCombinedElementByElement) {
  constexpr int64_t kRows = 3;
  for (int64_t cols : {1, 7, 16, 37}) {
    SCOPED_TRACE(cols);
    const int64_t n = kRows * cols;
    std::vector<float> start(n), x(n);
    for (int64_t i = 0; i < n; ++i) {
      start[i] = static_cast<float>(i % 11 - 5);
      x[i] = static_cast<float>(i % 7 - 3);
    }
    const MatrixView<const float> xs(x.data(), kRows, cols);
    ForEveryTarget([&] {
      std::vector<float> added(start), blended(start), multiplied(start);
      AddScaled({added.data(), kRows, cols}, 0.5f, xs);
      Blend({blended.data(), kRows, cols}, 2.0f, -3.0f, xs);
      Multiply({multiplied.data(), kRows, cols}, xs);
      for (int64_t i = 0; i < n; ++i) {
        EXPECT_EQ(added[i], start[i] + 0.5f * x[i]);
        EXPECT_EQ(blended[i], 2 * start[i] - 3 * x[i]);
        EXPECT_EQ(multiplied[i], start[i] * x[i]);
      }
    });
  }
}

TEST(ElementwiseTest, BiasedFunctionsTakeOneBiasPerColumn) {
  constexpr int64_t kRows = 4, kCols = 37;
  const std::vector<float> start = Random(kRows * kCols, 3, 2), bias = Random(kCols, 4, 2);
  const std::vector<float> target = Random(kRows * kCols, 5), gate = Random(kRows * kCols, 6, 2);
  ForEveryTarget([&] {
    std::vector<float> sigmoid(start), decay(start), blend(start);
    BiasedSigmoid({sigmoid.data(), kRows, kCols}, bias);
    Rwkv7Decay({decay.data(), kRows, kCols}, bias);
    SigmoidBlend({blend.data(), kRows, kCols}, {target.data(), kRows, kCols}, bias, {gate.data(), kRows, kCols});
    for (int64_t i = 0; i < kRows * kCols; ++i) {
      const float biased = bias[i % kCols] + start[i];  // the one rounding that the reference is not to be blamed for
      ExpectUlps(sigmoid[i], reference::Sigmoid(biased), 4, biased);
      ExpectUlps(decay[i], reference::Rwkv7Decay(biased), 4, biased);
      const double share = reference::Sigmoid(bias[i % kCols] + gate[i]);
      const double size = std::fabs(start[i]) + std::fabs(target[i]);
      EXPECT_NEAR(blend[i], start[i] + (double{target[i]} - start[i]) * share, 6 * 0x1p-23 * size);
    }
  });
}

TEST(Rwkv7DecayTest, StaysInItsRangeForEveryArgument) {
  const std::vector<float> arguments = Arguments(), bias(arguments.size(), 0.0f);
  const int64_t n = static_cast<int64_t>(arguments.size());
  ForEveryTarget([&] {
    std::vector<float> y(arguments);
    Rwkv7Decay({y.data(), 1, n}, bias);
    for (int64_t i = 0; i < n; ++i) {
      ExpectUlps(y[i], reference::Rwkv7Decay(arguments[i]), 4, arguments[i]);
      EXPECT_LE(y[i], 1.0f);
      EXPECT_GE(y[i], 0.545239f);
    }
  });
}

}  // namespace
}  // namespace kvm
