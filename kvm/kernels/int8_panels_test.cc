#include "kvm/kernels/int8_panels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

constexpr float kSmallest = std::numeric_limits<float>::min();  // normal

// Weights [outputs, inputs] in panels of int8.
struct Panels {
  Panels(const std::vector<float>& weights, int64_t outputs, int64_t inputs) {
    view = {DType::kI8, outputs, inputs, nullptr};
    bytes.resize((view.byte_size() + 3) / 4);
    view.data = bytes.data();
    for (int64_t p = 0; p < view.num_panels(); ++p) {
      const int64_t rows = std::min(kPanelOutputs, outputs - p * kPanelOutputs);
      MakeInt8Panel(absl::MakeConstSpan(weights).subspan(p * kPanelOutputs * inputs, rows * inputs), rows, inputs,
                    reinterpret_cast<unsigned char*>(bytes.data()) + p * view.panel_byte_size());
    }
  }
  std::vector<float> Row(int64_t output) const {
    std::vector<float> row(view.inputs);
    CopyInt8Row(view, output, absl::MakeSpan(row));
    return row;
  }
  std::vector<float> bytes;  // of floats, for their alignment
  PanelsView view;
};

// The promise of the header, block by block. The slack is the rounding of the scale and of scale·q: 2⁻²³ of the
// largest.
void ExpectWithinBound(const std::vector<float>& weights, int64_t outputs, int64_t inputs) {
  const Panels panels(weights, outputs, inputs);
  for (int64_t o = 0; o < outputs; ++o) {
    const std::vector<float> row = panels.Row(o);
    for (int64_t begin = 0; begin < inputs; begin += kScaleInputs) {
      const int64_t end = std::min(begin + kScaleInputs, inputs);
      double largest = 0;
      for (int64_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(double{weights[o * inputs + i]}));
      const double bound = largest < 127.0 * kSmallest ? largest : largest * (1.0 / 254 + 0x1p-23);
      for (int64_t i = begin; i < end; ++i) {
        EXPECT_LE(std::abs(double{weights[o * inputs + i]} - row[i]), bound) << "output " << o << ", input " << i;
      }
    }
  }
}

TEST(Int8PanelsTest, ErrorIsAtMostHalfAStep) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  for (const int64_t outputs : {1, 16, 37}) {
    for (const int64_t inputs : {1, 63, 64, 65, 200}) {
      std::vector<float> weights(outputs * inputs);
      for (float& w : weights) w = normal(generator);
      ExpectWithinBound(weights, outputs, inputs);
      // Of all magnitudes that a float has, denormals included, and a few zeros.
      for (float& w : weights) {
        const int exponent = static_cast<int>(generator() % 270) - 145;
        w = generator() % 10 == 0 ? 0.0f : std::ldexp(normal(generator) / 8, exponent);
      }
      ExpectWithinBound(weights, outputs, inputs);
    }
  }
}

TEST(Int8PanelsTest, LargestFloatsStayFinite) {
  const float largest = std::numeric_limits<float>::max();
  const Panels panels({largest, -largest, largest / 3, 1}, 1, 4);
  const std::vector<float> row = panels.Row(0);
  EXPECT_TRUE(std::isfinite(row[0]));
  EXPECT_EQ(row[1], -row[0]);
  EXPECT_NEAR(row[0] / largest, 1, 1e-6);
  EXPECT_NEAR(row[2] / largest, 42 / 127.0, 1e-6);
  EXPECT_EQ(row[3], 0);
}

TEST(Int8PanelsTest, ZerosAndDenormalsBecomeZero) {
  const float denormal = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(Panels({0, -0.0f, 0}, 1, 3).Row(0), std::vector<float>(3, 0.0f));
  EXPECT_EQ(Panels({denormal, -kSmallest, 100 * kSmallest}, 1, 3).Row(0), std::vector<float>(3, 0.0f));
  EXPECT_EQ(Int8Scale(127 * kSmallest), kSmallest);
}

// One large weight costs its own block of one output, and nothing else.
TEST(Int8PanelsTest, AnOutlierCostsOnlyItsBlock) {
  std::vector<float> weights(2 * 130, 0.5f);
  weights[64] = 1e6f;
  ExpectWithinBound(weights, 2, 130);
  const Panels panels(weights, 2, 130);
  const std::vector<float> row = panels.Row(0);
  EXPECT_NEAR(row[63], 0.5f, 1e-7);
  EXPECT_NEAR(row[64], 1e6f, 0.1f);
  EXPECT_EQ(row[65], 0);
  EXPECT_NEAR(row[128], 0.5f, 1e-7);
  EXPECT_NEAR(panels.Row(1)[65], 0.5f, 1e-7);
}

TEST(Int8PanelsTest, RoundsToNearestEven) {
  EXPECT_EQ(ToInt8(1, 1), 1);
  EXPECT_EQ(ToInt8(0.5f, 1), 0);
  EXPECT_EQ(ToInt8(1.5f, 1), 2);
  EXPECT_EQ(ToInt8(-2.5f, 1), -2);
  EXPECT_EQ(ToInt8(-127, 1), -127);
}

// The layout as docs/formats/packed.md has it: scales of 16 outputs, then 64 inputs of 16; then the rest.
TEST(Int8PanelsTest, PanelsAreBlocksOfScalesAndNumbers) {
  constexpr int64_t kOutputs = 17, kInputs = 66;
  std::vector<float> weights(kOutputs * kInputs);
  for (int64_t o = 0; o < kOutputs; ++o) {
    for (int64_t i = 0; i < kInputs; ++i) weights[o * kInputs + i] = static_cast<float>((o + 1) * (i - 40));
    weights[o * kInputs] = -127.0f * (o + 1);      // so that the first block's scale is o + 1
    weights[o * kInputs + 65] = 254.0f * (o + 1);  // and the second's is 2·(o + 1)
  }
  const Panels panels(weights, kOutputs, kInputs);
  const int64_t panel_bytes = (64 + 64 * 16) + (64 + 2 * 16);
  EXPECT_EQ(panels.view.panel_byte_size(), panel_bytes);
  EXPECT_EQ(panels.view.byte_size(), 2 * panel_bytes);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(panels.bytes.data());
  const auto scale = [&](int64_t at) {
    float value;
    std::memcpy(&value, bytes + at, sizeof(value));
    return value;
  };
  const auto number = [&](int64_t at) { return static_cast<int>(static_cast<int8_t>(bytes[at])); };
  for (int64_t o = 0; o < kOutputs; ++o) {
    const int64_t panel = o / 16 * panel_bytes, lane = o % 16;
    EXPECT_EQ(scale(panel + 4 * lane), o + 1);
    EXPECT_EQ(number(panel + 64 + lane), -127);
    EXPECT_EQ(number(panel + 64 + 63 * 16 + lane), 23);
    EXPECT_EQ(scale(panel + 1088 + 4 * lane), 2 * (o + 1));
    EXPECT_EQ(number(panel + 1088 + 64 + lane), 12);
    EXPECT_EQ(number(panel + 1088 + 64 + 16 + lane), 127);
  }
  for (int64_t lane = 1; lane < 16; ++lane) EXPECT_EQ(scale(panel_bytes + 4 * lane), 0) << lane;
}

}  // namespace
}  // namespace kvm
