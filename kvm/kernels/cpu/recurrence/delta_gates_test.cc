#include "kvm/kernels/cpu/recurrence/delta_gates.h"

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/cpu/vectors/every_target.h"
#include "kvm/kernels/reference/delta_rule.h"

namespace kvm {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<double> ToDouble(const float* x, int64_t n) { return std::vector<double>(x, x + n); }

std::vector<float> Uniform(int64_t n, float low, float high, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> distribution(low, high);
  std::vector<float> x(n);
  for (float& e : x) e = distribution(random);
  return x;
}

TEST(DeltaUnitLengthTest, MatchesReferencePerHead) {
  ForEveryTarget([] {
    for (int64_t dim : {1, 7, 16, 20, 64}) {
      // With lengths about that of the root of the epsilon, 1e-3, too.
      for (const float size : {1.0f, 1e-3f, 1e-5f}) {
        const std::vector<float> before = Uniform(2 * 3 * dim, -size, size, 1);
        std::vector<float> x = before;
        DeltaUnitLength({x.data(), 2, 3 * dim}, dim, 0.25f);
        for (int64_t at = 0; at < 6 * dim; at += dim) {
          const std::vector<double> expected = reference::DeltaUnitLength(ToDouble(&before[at], dim), 0.25);
          for (int64_t c = 0; c < dim; ++c) EXPECT_NEAR(x[at + c], expected[c], 1e-6 * std::abs(expected[c]));
        }
      }
    }
  });
}

TEST(DeltaUnitLengthTest, ZerosStayZero) {
  ForEveryTarget([] {
    std::vector<float> x(20, 0.0f);
    DeltaUnitLength({x.data(), 1, 20}, 10, 1.0f);
    EXPECT_EQ(x, std::vector<float>(20, 0.0f));
  });
}

TEST(ScaledSigmoidTest, ReachesItsScale) {
  ForEveryTarget([] {
    std::vector<float> y = {0, 100, -1000, std::log(3.0f)};
    ScaledSigmoid({y.data(), 2, 2}, 2.0f);
    EXPECT_EQ(y[0], 1);
    EXPECT_EQ(y[1], 2);
    EXPECT_EQ(y[2], 0);
    EXPECT_NEAR(y[3], 1.5, 1e-6);
  });
}

struct Decay {
  std::function<void(MatrixView<float>, absl::Span<const float>, absl::Span<const float>)> kernel;
  std::function<double(double, double)> log_decay;  // of y + bias and the rate
};

std::vector<Decay> Decays() {
  const auto bounded = [](float bound) {
    return Decay{[bound](MatrixView<float> y, absl::Span<const float> rate, absl::Span<const float> bias) {
                   BoundedDecay(y, rate, bias, bound);
                 },
                 [bound](double x, double rate) { return reference::BoundedLogDecay(x, rate, bound); }};
  };
  return {{SoftplusDecay, reference::SoftplusLogDecay}, bounded(-5), bounded(-0.001f), bounded(-1e4f)};
}

TEST(DecayTest, MatchesReferenceFromNoDecayToAllOfIt) {
  ForEveryTarget([] {
    std::vector<float> projections = {-1000, -90, -20, 0, 20, 90, 1000};
    const std::vector<float> more = Uniform(30, -6, 6, 1);
    projections.insert(projections.end(), more.begin(), more.end());
    const int64_t n = static_cast<int64_t>(projections.size());
    for (const Decay& decay : Decays()) {
      for (const float rate : {0.0f, 0.01f, 1.0f, 16.0f, 1e4f}) {
        const std::vector<float> rates(n, rate), bias = Uniform(n, -1, 1, 2);
        std::vector<float> y = projections;
        decay.kernel({y.data(), 1, n}, rates, bias);
        for (int64_t i = 0; i < n; ++i) {
          const double log_decay = decay.log_decay(projections[i] + bias[i], rate);
          const double expected = std::exp(log_decay);
          // A log decay's rounding is a relative error of the decay.
          const double tolerance = expected * (4e-7 + 1e-6 * std::min(std::abs(log_decay), 110.0)) + 1e-43;
          // σ of a product of large factors, whose rounding counts as well.
          EXPECT_NEAR(y[i], expected, tolerance + expected * 2e-6 * std::abs(log_decay))
              << projections[i] << " " << rate;
          EXPECT_TRUE(y[i] >= 0 && y[i] <= 1) << y[i];
        }
      }
    }
  });
}

TEST(DecayTest, HugeLogDecaysAreZeroAndNeverNan) {
  ForEveryTarget([] {
    // Products of −1e4, −1e38·1e4 = −∞ and −∞·0.
    const std::vector<float> projections = {1e4f, 1e4f, 1e4f, -1e4f, 3e38f};
    const std::vector<float> rates = {1, 1e38f, kInfinity, kInfinity, 1};
    const std::vector<float> bias(5, 0.0f);
    std::vector<float> y = projections;
    SoftplusDecay({y.data(), 1, 5}, rates, bias);
    EXPECT_EQ(y, (std::vector<float>{0, 0, 0, 1, 0}));
    y = projections;
    BoundedDecay({y.data(), 1, 5}, rates, bias, -1e4f);
    EXPECT_EQ(y, (std::vector<float>{0, 0, 0, 1, 0}));
  });
}

TEST(DecayTest, NanStaysNan) {
  ForEveryTarget([] {
    for (const Decay& decay : Decays()) {
      std::vector<float> y = {1, std::numeric_limits<float>::quiet_NaN(), 1};
      decay.kernel({y.data(), 1, 3}, {1.0f, 1.0f, 1.0f}, {0.0f, 0.0f, 0.0f});
      EXPECT_FALSE(std::isnan(y[0]));
      EXPECT_TRUE(std::isnan(y[1]));
    }
  });
}

TEST(DecayTest, NanOfARateOrABiasIsInItsColumn) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ForEveryTarget([&] {
    for (const Decay& decay : Decays()) {
      // Above and below 0, where softplus goes two ways.
      for (const float projection : {-3.0f, 0.0f, 3.0f}) {
        for (int64_t i : {0, 7, 18}) {
          std::vector<float> rate(19, 1.0f), bias(19, 0.5f);
          for (std::vector<float>* poisoned : {&rate, &bias}) {
            const float before = (*poisoned)[i];
            (*poisoned)[i] = nan;
            std::vector<float> y(2 * 19, projection);
            decay.kernel({y.data(), 2, 19}, rate, bias);
            (*poisoned)[i] = before;
            for (int64_t c = 0; c < 2 * 19; ++c) EXPECT_EQ(std::isnan(y[c]), c % 19 == i) << c;
          }
        }
      }
    }
  });
}

TEST(DeltaGatesTest, NanStaysInItsHead) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ForEveryTarget([&] {
    for (const int64_t at : {0, 11, 19}) {
      std::vector<float> unit(40, 1.0f);
      unit[20 + at] = nan;
      std::vector<float> norm = unit, sigmoid = unit;
      DeltaUnitLength({unit.data(), 1, 40}, 20, 1.0f);
      ScaledSigmoid({sigmoid.data(), 1, 40}, 2.0f);
      std::vector<float> weight(20, 1.0f), gate(40, 1.0f);
      GatedRmsNorm({norm.data(), 1, 40}, weight, 1e-5f, {});
      for (int64_t c = 0; c < 40; ++c) {
        EXPECT_EQ(std::isnan(unit[c]), c >= 20) << c;
        EXPECT_EQ(std::isnan(norm[c]), c >= 20) << c;
        EXPECT_EQ(std::isnan(sigmoid[c]), c == 20 + at) << c;
      }
      // Of weights and gates, in their channels.
      std::vector<float> x(40, 1.0f);
      weight[at] = nan;
      GatedRmsNorm({x.data(), 1, 40}, weight, 1e-5f, {});
      for (int64_t c = 0; c < 40; ++c) EXPECT_EQ(std::isnan(x[c]), c % 20 == at) << c;
      x.assign(40, 1.0f);
      weight[at] = 1;
      gate[at] = nan;
      GatedRmsNorm({x.data(), 1, 40}, weight, 1e-5f, {gate.data(), 1, 40});
      for (int64_t c = 0; c < 40; ++c) EXPECT_EQ(std::isnan(x[c]), c == at) << c;
    }
  });
}

TEST(GatedRmsNormTest, MatchesReferencePerHead) {
  ForEveryTarget([] {
    for (int64_t dim : {1, 7, 16, 20, 64}) {
      for (const float size : {1.0f, 1e-3f}) {
        const std::vector<float> before = Uniform(2 * 3 * dim, -size, size, 1), gate = Uniform(2 * 3 * dim, -1, 1, 2);
        const std::vector<float> weight = Uniform(dim, 0.5f, 1.5f, 3);
        for (const bool gated : {false, true}) {
          std::vector<float> x = before;
          GatedRmsNorm({x.data(), 2, 3 * dim}, weight, 1e-5f,
                       gated ? MatrixView<const float>(gate.data(), 2, 3 * dim) : MatrixView<const float>());
          for (int64_t at = 0; at < 6 * dim; at += dim) {
            const std::vector<double> gates = gated ? ToDouble(&gate[at], dim) : std::vector<double>(dim, 1.0);
            const std::vector<double> expected =
                reference::GatedRmsNorm(ToDouble(&before[at], dim), ToDouble(weight.data(), dim), 1e-5, gates);
            for (int64_t c = 0; c < dim; ++c) EXPECT_NEAR(x[at + c], expected[c], 1e-6 * std::abs(expected[c]));
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace kvm
