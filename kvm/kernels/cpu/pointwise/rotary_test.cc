#include "kvm/kernels/cpu/pointwise/rotary.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/bfloat16.h"
#include "kvm/kernels/cpu/vectors/every_target.h"
#include "kvm/kernels/reference/rotary.h"

namespace kvm {
namespace {

std::vector<float> Random(int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& v : values) v = normal(generator);
  return values;
}

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

struct Table {
  std::vector<float> cos, sin;
};

Table MakeTable(const std::vector<float>& freqs, int64_t first_position, int64_t rows, DType dtype) {
  const int64_t pairs = static_cast<int64_t>(freqs.size());
  Table table{std::vector<float>(rows * pairs), std::vector<float>(rows * pairs)};
  RotaryTable(freqs, first_position, dtype, {table.cos.data(), rows, pairs}, {table.sin.data(), rows, pairs});
  return table;
}

// The expected bits are the frequencies that the golden sets under testing/golden carry.
TEST(RotaryFrequenciesTest, AreTheBitsOfTheModels) {
  EXPECT_EQ(Bits(RotaryFrequencies(4, 10000)), (std::vector<uint32_t>{0x3f800000, 0x38d1b717}));
  EXPECT_EQ(Bits(RotaryFrequencies(6, 10000)), (std::vector<uint32_t>{0x3f800000, 0x3c23d70a, 0x38d1b717}));
  EXPECT_EQ(Bits(RotaryFrequencies(8, 10000)), (std::vector<uint32_t>{0x3f800000, 0x3d3e1e95, 0x3b0d316e, 0x38d1b717}));
  EXPECT_EQ(Bits(RotaryFrequencies(16, 10000)),
            (std::vector<uint32_t>{0x3f800000, 0x3e895aa1, 0x3d936440, 0x3c9e29a7, 0x3ba9b899, 0x3ab61fb9, 0x39c36ee9,
                                   0x38d1b717}));
}

TEST(RotaryFrequenciesTest, RunFromOneToTheInverseOfTheta) {
  EXPECT_TRUE(RotaryFrequencies(0, 10000).empty());
  EXPECT_EQ(RotaryFrequencies(2, 10000), std::vector<float>{1});
  for (int64_t dim : {4, 6, 32, 64, 128}) {
    for (double theta : {100.0, 10000.0, 1e6}) {
      const std::vector<float> freqs = RotaryFrequencies(dim, theta);
      const std::vector<double> expected = reference::RotaryFrequencies(dim, theta);
      ASSERT_EQ(freqs.size(), expected.size());
      EXPECT_EQ(freqs.front(), 1.0f);
      EXPECT_EQ(freqs.back(), static_cast<float>(1 / theta));
      for (size_t p = 0; p < freqs.size(); ++p) {
        // An exponent off by 2⁻²³ changes the power by log(theta)·2⁻²³ of itself.
        EXPECT_NEAR(freqs[p], expected[p], expected[p] * (std::log(theta) + 2) * 0x1p-23) << dim << " " << p;
      }
    }
  }
}

TEST(RotaryTableTest, HoldsCosinesAndSinesOfFloatAngles) {
  const std::vector<float> freqs = RotaryFrequencies(16, 10000);
  for (int64_t first : {0, 5, 65536, 1000000}) {
    const Table exact = MakeTable(freqs, first, 3, DType::kF32);
    const Table coarse = MakeTable(freqs, first, 3, DType::kBF16);
    for (int64_t r = 0; r < 3; ++r) {
      for (size_t p = 0; p < freqs.size(); ++p) {
        const float angle = static_cast<float>(first + r) * freqs[p];
        const size_t i = r * freqs.size() + p;
        EXPECT_EQ(exact.cos[i], static_cast<float>(std::cos(double{angle})));
        EXPECT_EQ(exact.sin[i], static_cast<float>(std::sin(double{angle})));
        EXPECT_EQ(coarse.cos[i], ToFloat(ToBFloat16(exact.cos[i])));
        EXPECT_EQ(coarse.sin[i], ToFloat(ToBFloat16(exact.sin[i])));
      }
    }
  }
}

TEST(ApplyRotaryTest, AgreesWithReferenceOnEveryTarget) {
  constexpr int64_t kRows = 3, kHeads = 2, kHeadDim = 72;
  const std::vector<float> start = Random(kRows * kHeads * kHeadDim, 1);
  for (int64_t rotary_dim : {0, 2, 6, 16, 32, 34, 72}) {
    SCOPED_TRACE(rotary_dim);
    const std::vector<float> freqs = RotaryFrequencies(rotary_dim, 10000);
    const Table table = MakeTable(freqs, 100, kRows, DType::kF32);
    const int64_t pairs = rotary_dim / 2;
    ForEveryTarget([&] {
      std::vector<float> x(start);
      ApplyRotary({x.data(), kRows, kHeads * kHeadDim}, kHeadDim, {table.cos.data(), kRows, pairs},
                  {table.sin.data(), kRows, pairs});
      for (int64_t run = 0; run < kRows * kHeads; ++run) {
        std::vector<double> angles;
        for (float freq : freqs) angles.push_back(static_cast<float>(100 + run / kHeads) * freq);
        const std::vector<float> head(start.begin() + run * kHeadDim, start.begin() + (run + 1) * kHeadDim);
        const std::vector<double> expected = reference::ApplyRotary(head, angles);
        for (int64_t c = 0; c < kHeadDim; ++c) {
          const float got = x[run * kHeadDim + c];
          if (c >= rotary_dim) {
            EXPECT_EQ(got, head[c]);
          } else {
            // The table's roundings, two products and a sum, of terms no larger than both channels together.
            EXPECT_NEAR(got, expected[c], 4 * 0x1p-24 * (std::fabs(head[c]) + std::fabs(head[c ^ 1]))) << c;
          }
        }
      }
    });
  }
}

TEST(ApplyRotaryTest, PositionZeroChangesNothing) {
  const std::vector<float> freqs = RotaryFrequencies(6, 10000);
  const Table table = MakeTable(freqs, 0, 1, DType::kBF16);
  const std::vector<float> start = Random(8, 2);
  ForEveryTarget([&] {
    std::vector<float> x(start);
    ApplyRotary({x.data(), 1, 8}, 8, {table.cos.data(), 1, 3}, {table.sin.data(), 1, 3});
    EXPECT_EQ(x, start);
  });
}

}  // namespace
}  // namespace kvm
