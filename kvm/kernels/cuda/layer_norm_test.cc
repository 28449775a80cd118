#include "kvm/kernels/cuda/layer_norm.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kvm/kernels/cuda/device.h"

namespace kvm::cuda {
namespace {

constexpr float kEpsilon = 1e-5f;
constexpr float kUntouched = -77;

TEST(LayerNormArguments, RefusesShapesThatDiffer) {
  const absl::Status status = LayerNorm(MatrixView<const float>(nullptr, 2, 3), nullptr, nullptr, kEpsilon,
                                        MatrixView<float>(nullptr, 2, 4), nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_NE(status.message().find("x is [2, 3] but out is [2, 4]"), absl::string_view::npos) << status;
}

TEST(LayerNormArguments, RefusesRowsThatOverlapAndNullAddresses) {
  float memory[12] = {};
  const MatrixView<float> dense(memory, 3, 4), overlapping(memory, 3, 4, 3), none(nullptr, 3, 4);
  const auto norm = [&](MatrixView<float> x, const float* weight, const float* bias, MatrixView<float> out) {
    return LayerNorm(x, weight, bias, kEpsilon, out, nullptr);
  };
  EXPECT_TRUE(absl::IsInvalidArgument(norm(overlapping, memory, memory, dense)));
  EXPECT_TRUE(absl::IsInvalidArgument(norm(dense, memory, memory, overlapping)));
  EXPECT_TRUE(absl::IsInvalidArgument(norm(none, memory, memory, dense)));
  EXPECT_TRUE(absl::IsInvalidArgument(norm(dense, memory, memory, none)));
  EXPECT_TRUE(absl::IsInvalidArgument(norm(dense, nullptr, memory, dense)));
  EXPECT_TRUE(absl::IsInvalidArgument(norm(dense, memory, nullptr, dense)));
}

TEST(LayerNormArguments, NoRowsOrNoColumnsAreNoWork) {
  const MatrixView<float> no_rows(nullptr, 0, 3);
  const MatrixView<float> no_columns(nullptr, 3, 0);
  EXPECT_TRUE(LayerNorm(no_rows, nullptr, nullptr, kEpsilon, no_rows, nullptr).ok());
  EXPECT_TRUE(LayerNorm(no_columns, nullptr, nullptr, kEpsilon, no_columns, nullptr).ok());
}

std::vector<float> RandomFloats(int64_t count, float mean, std::mt19937& random) {
  std::normal_distribution<float> normal(mean, 1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

class LayerNormTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (absl::Status device = RequireDevice(); !device.ok()) GTEST_SKIP() << device;
    auto stream = Stream::Create();
    ASSERT_TRUE(stream.ok()) << stream.status();
    stream_ = std::make_unique<Stream>(std::move(*stream));
  }

  // Normalizes rows of `x` that lie cols + gap apart; the result has the same gaps.
  std::vector<float> Run(const std::vector<float>& x, int64_t cols, int64_t gap, const std::vector<float>& weight,
                         const std::vector<float>& bias, bool in_place) {
    const int64_t rows = static_cast<int64_t>(x.size()) / (cols + gap);
    std::vector<float> out(x.size(), kUntouched);
    auto device_x = DeviceBuffer::CopyOf(x, stream_->get());
    auto device_weight = DeviceBuffer::CopyOf(weight, stream_->get());
    auto device_bias = DeviceBuffer::CopyOf(bias, stream_->get());
    auto device_out = DeviceBuffer::CopyOf(out, stream_->get());
    EXPECT_TRUE(device_x.ok() && device_weight.ok() && device_bias.ok() && device_out.ok());
    DeviceBuffer& target = in_place ? *device_x : *device_out;
    EXPECT_EQ(LayerNorm(MatrixView<const float>(device_x->floats(), rows, cols, cols + gap), device_weight->floats(),
                        device_bias->floats(), kEpsilon, MatrixView<float>(target.floats(), rows, cols, cols + gap),
                        stream_->get()),
              absl::OkStatus());
    EXPECT_EQ(target.Read(absl::MakeSpan(out), stream_->get()), absl::OkStatus());
    return out;
  }

  std::unique_ptr<Stream> stream_;
};

TEST_F(LayerNormTest, EveryWidthAgreesWithDoublePrecision) {
  for (const int64_t cols : {1, 2, 31, 32, 33, 255, 256, 257, 1000, 4099}) {
    std::mt19937 random(static_cast<unsigned>(cols));
    const int64_t rows = 5;
    const std::vector<float> x = RandomFloats(rows * cols, 3, random);
    const std::vector<float> weight = RandomFloats(cols, 1, random);
    const std::vector<float> bias = RandomFloats(cols, 0, random);
    const std::vector<float> out = Run(x, cols, 0, weight, bias, /*in_place=*/false);
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = &x[static_cast<size_t>(r * cols)];
      double mean = 0;
      for (int64_t c = 0; c < cols; ++c) mean += row[c] / static_cast<double>(cols);
      double variance = 0;
      for (int64_t c = 0; c < cols; ++c) variance += (row[c] - mean) * (row[c] - mean) / static_cast<double>(cols);
      const double scale = 1 / std::sqrt(variance + static_cast<double>(kEpsilon));
      // The mean is off by a few roundings of values around 8 at most, and the scale magnifies that.
      const double tolerance = 1e-6 * (8 * scale + 8);
      for (int64_t c = 0; c < cols; ++c) {
        const size_t i = static_cast<size_t>(c);
        const double expected = (row[c] - mean) * scale * static_cast<double>(weight[i]) + static_cast<double>(bias[i]);
        ASSERT_NEAR(out[static_cast<size_t>(r * cols + c)], expected, tolerance * (1 + std::abs(weight[i])))
            << "row " << r << ", column " << c << " of " << cols;
      }
    }
  }
}

TEST_F(LayerNormTest, ARowsBitsDependOnThatRowAlone) {
  const int64_t cols = 700;
  std::mt19937 random(1);
  const std::vector<float> x = RandomFloats(9 * cols, 0, random);
  const std::vector<float> weight = RandomFloats(cols, 1, random);
  const std::vector<float> bias = RandomFloats(cols, 0, random);
  const std::vector<float> together = Run(x, cols, 0, weight, bias, /*in_place=*/false);
  for (int64_t begin = 0; begin < 9 * cols; begin += cols) {
    const std::vector<float> alone =
        Run({x.begin() + begin, x.begin() + begin + cols}, cols, 0, weight, bias, /*in_place=*/false);
    EXPECT_EQ(alone, std::vector<float>(together.begin() + begin, together.begin() + begin + cols));
  }
  EXPECT_EQ(Run(x, cols, 0, weight, bias, /*in_place=*/true), together);
}

TEST_F(LayerNormTest, LeavesWhatLiesBetweenRowsAlone) {
  // Rows of two columns become (−1, 1) up to epsilon, whatever they were; a gap of one element follows each.
  const std::vector<float> out = Run({1, 3, 99, 50, 10, 99}, 2, 1, {1, 2}, {0, 5}, /*in_place=*/false);
  const std::vector<float> expected = {-1, 7, kUntouched, 1, 3, kUntouched};
  ASSERT_EQ(out.size(), expected.size());
  for (size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], expected[i], 2e-5) << i;
}

}  // namespace
}  // namespace kvm::cuda
