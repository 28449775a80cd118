#include "kvm/io/gguf/quant_blocks.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/kernels/tensor.h"

namespace kvm {
namespace {

constexpr BlockType kQuantized[] = {BlockType::kQ8_0, BlockType::kQ4_0, BlockType::kQ4_1, BlockType::kQ5_0,
                                    BlockType::kQ5_1, BlockType::kQ2_K, BlockType::kQ3_K, BlockType::kQ4_K,
                                    BlockType::kQ5_K, BlockType::kQ6_K};

uint32_t Bits(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof(bits));
  return bits;
}

class QuantBlocksTest : public ::testing::TestWithParam<BlockType> {};

// The numbers that the gguf package has for random blocks (testing/data/gguf/make_gguf.py), whose scales are zeros,
// subnormal, infinite, NaN and random ones: the same bits, but those of NaN.
TEST_P(QuantBlocksTest, HasTheBitsOfTheFormatsOwnTools) {
  const auto golden = SafetensorsFile::Open("testing/data/gguf/blocks.safetensors");
  ASSERT_TRUE(golden.ok()) << golden.status();
  const std::string name(Name(GetParam()));
  const TensorView* const blocks = (*golden)->Find(name + ".blocks");
  const TensorView* const values = (*golden)->Find(name + ".values");
  ASSERT_TRUE(blocks != nullptr && values != nullptr);
  ASSERT_EQ(blocks->shape, (Shape{values->shape[0], SizeOf(GetParam()).bytes}));
  ASSERT_EQ(values->shape[1], SizeOf(GetParam()).elements);

  const std::vector<float> expected = ReadFloats(*values);
  std::vector<float> got(expected.size());
  DequantizeBlocks(GetParam(), {static_cast<const uint8_t*>(blocks->data), static_cast<size_t>(blocks->num_elements())},
                   absl::MakeSpan(got));
  int64_t finite = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    finite += std::isfinite(expected[i]);
    if (std::isnan(expected[i]) && std::isnan(got[i])) continue;
    ASSERT_EQ(Bits(got[i]), Bits(expected[i])) << i << ": " << got[i] << " and " << expected[i];
  }
  EXPECT_GT(finite * 2, static_cast<int64_t>(got.size()));
}

INSTANTIATE_TEST_SUITE_P(All, QuantBlocksTest, ::testing::ValuesIn(kQuantized),
                         [](const auto& type) { return std::string(Name(type.param)); });

// sign · 2^(exponent − 15) · 1.mantissa, in double.
double HalfAsDouble(int bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31) return mantissa == 0 ? sign * INFINITY : NAN;
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}

TEST(DequantizeBlocksTest, KnowsEveryHalf) {
  for (int bits = 0; bits < 65536; ++bits) {
    const uint8_t bytes[] = {static_cast<uint8_t>(bits & 255), static_cast<uint8_t>(bits >> 8)};
    float got = 1;
    DequantizeBlocks(BlockType::kF16, bytes, {&got, 1});
    const double expected = HalfAsDouble(bits);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(Bits(got), Bits(static_cast<float>(expected))) << bits;
    }
  }
}

TEST(DequantizeBlocksTest, TakesNumbersThatAreNotQuantized) {
  const uint8_t bf16[] = {0xc0, 0x3f, 0x00, 0xc0};
  std::vector<float> out(2);
  DequantizeBlocks(BlockType::kBF16, bf16, absl::MakeSpan(out));
  EXPECT_EQ(out, (std::vector<float>{1.5f, -2.0f}));
  const uint8_t f32[] = {0xff, 0x00, 0x00, 0xc0, 0x3f};
  out.resize(1);
  DequantizeBlocks(BlockType::kF32, absl::MakeSpan(f32).subspan(1), absl::MakeSpan(out));  // not aligned
  EXPECT_EQ(out, (std::vector<float>{1.5f}));
  DequantizeBlocks(BlockType::kQ4_0, {}, {});
}

TEST(BlockTypeTest, KnowsTheNumbersOfTheFormat) {
  for (uint32_t number = 0; number < 100; ++number) {
    const auto type = BlockTypeOf(number);
    if (!type.has_value()) continue;
    EXPECT_EQ(static_cast<uint32_t>(*type), number);
    EXPECT_EQ(NameOfUnreadType(number), "") << number;
    if (DTypeOf(*type).has_value()) {
      EXPECT_EQ(Name(*DTypeOf(*type)), Name(*type));
      EXPECT_EQ(SizeOf(*DTypeOf(*type)), SizeOf(*type).bytes);
    }
  }
  EXPECT_EQ(NameOfUnreadType(9), "Q8_1");
  EXPECT_EQ(NameOfUnreadType(23), "IQ4_XS");
  EXPECT_EQ(NameOfUnreadType(39), "MXFP4");
  EXPECT_EQ(NameOfUnreadType(1000), "");
}

TEST(DequantizeBlocksDeathTest, RefusesHalfBlocks) {
  std::vector<uint8_t> bytes(35);
  std::vector<float> out(64);
  EXPECT_DEATH(DequantizeBlocks(BlockType::kQ4_0, bytes, absl::MakeSpan(out)), "bytes.size\\(\\) is 35, expected 18");
  bytes.resize(18);
  EXPECT_DEATH(DequantizeBlocks(BlockType::kQ4_0, bytes, absl::MakeSpan(out)), "out.size\\(\\) is 64, expected 32");
  EXPECT_DEATH(DequantizeBlocks(BlockType::kI8, bytes, absl::MakeSpan(out)), "expected a quantized type, F32, F16");
}

}  // namespace
}  // namespace kvm
