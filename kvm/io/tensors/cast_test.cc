#include "kvm/io/tensors/cast.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/kernels/dtype.h"

namespace kvm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ToHalf, EveryHalfComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float value = ReadFloats({DType::kF16, {1}, &half})[0];
    EXPECT_EQ(ToHalf(value), half) << bits;
  }
}

TEST(ToHalf, RoundsToNearestEven) {
  EXPECT_EQ(ToHalf(1.0f + std::ldexp(1.0f, -11)), 0x3c00);          // halfway, down to even
  EXPECT_EQ(ToHalf(1.0f + 3 * std::ldexp(1.0f, -11)), 0x3c02);      // halfway, up to even
  EXPECT_EQ(ToHalf(1.0f + 1.01f * std::ldexp(1.0f, -11)), 0x3c01);  // above halfway
  EXPECT_EQ(ToHalf(65519.0f), 0x7bff);                              // the largest
  EXPECT_EQ(ToHalf(65520.0f), 0x7c00);                              // infinite
  EXPECT_EQ(ToHalf(std::ldexp(1.0f, -25)), 0x0000);                 // halfway to the smallest, down to even
  EXPECT_EQ(ToHalf(1.01f * std::ldexp(1.0f, -25)), 0x0001);
  EXPECT_EQ(ToHalf(-std::ldexp(3.0f, -25)), 0x8002);  // 1.5 of the smallest
  EXPECT_EQ(ToHalf(std::ldexp(1.0f, -40)), 0x0000);
  EXPECT_EQ(ToHalf(std::ldexp(1023.75f, -24)), 0x0400);  // rounds up into the normal numbers
}

TEST(CastTensor, ConvertsAndKeepsShape) {
  const Tensor tensor = Tensor::FromFloats({2, 2}, {1, -2.5f, 0.1f, 3});
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const absl::StatusOr<Tensor> cast = CastTensor(tensor.view(), dtype, "t");
    ASSERT_TRUE(cast.ok()) << cast.status();
    EXPECT_EQ(cast->dtype(), dtype);
    EXPECT_THAT(cast->shape(), ElementsAre(2, 2));
    const std::vector<float> values = ReadFloats(cast->view());
    EXPECT_EQ(values[1], -2.5f);
    EXPECT_NEAR(values[2], 0.1f, dtype == DType::kF32 ? 0 : 0.0005);
  }
}

TEST(CastTensor, RefusesWhatDoesNotFit) {
  const absl::StatusOr<Tensor> half = CastTensor(Tensor::FromFloats({2}, {1, -70000}).view(), DType::kF16, "w");
  EXPECT_EQ(half.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(half.status().message()), HasSubstr("w: -70000 does not fit F16"));
  const float largest = std::numeric_limits<float>::max();
  EXPECT_FALSE(CastTensor(Tensor::FromFloats({1}, {largest}).view(), DType::kBF16, "w").ok());
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(CastTensor(Tensor::FromFloats({1}, {infinity}).view(), DType::kF16, "w").ok());
}

TEST(CastTensorDeathTest, ChecksTheDType) {
  const Tensor tensor = Tensor::FromFloats({1}, {1.0f});
  EXPECT_DEATH(static_cast<void>(CastTensor(tensor.view(), DType::kI8, "w")),
               "CastTensor: expected dtype F32, BF16 or F16");
}

}  // namespace
}  // namespace kvm
