#include "kvm/kernels/bfloat16.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace kvm {
namespace {

float FromBits(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, sizeof(f));
  return f;
}

TEST(BFloat16Test, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const BFloat16 x{static_cast<uint16_t>(bits)};
    const float f = ToFloat(x);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(ToFloat(ToBFloat16(f)))) << std::hex << bits;
    } else {
      EXPECT_EQ(ToBFloat16(f).bits, bits);
    }
  }
}

TEST(BFloat16Test, RoundsToNearestAndTiesToEven) {
  EXPECT_EQ(ToBFloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(ToBFloat16(FromBits(0x3f808000)).bits, 0x3f80);  // a tie below an odd neighbour
  EXPECT_EQ(ToBFloat16(FromBits(0x3f808001)).bits, 0x3f81);
  EXPECT_EQ(ToBFloat16(FromBits(0x3f817fff)).bits, 0x3f81);
  EXPECT_EQ(ToBFloat16(FromBits(0x3f818000)).bits, 0x3f82);  // a tie above an odd neighbour
  EXPECT_EQ(ToBFloat16(FromBits(0xbf818000)).bits, 0xbf82);
}

TEST(BFloat16Test, OverflowGoesToInfinity) {
  EXPECT_EQ(ToBFloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(ToBFloat16(-std::numeric_limits<float>::infinity()).bits, 0xff80);
}

TEST(BFloat16Test, NanStaysNanEvenWhenItsPayloadIsInTheLostHalf) {
  EXPECT_TRUE(std::isnan(ToFloat(ToBFloat16(FromBits(0x7f800001)))));
  EXPECT_TRUE(std::isnan(ToFloat(ToBFloat16(FromBits(0xffffffff)))));
}

}  // namespace
}  // namespace kvm
