#include "kvm/state/finite_tensors.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/kernels/dtype.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kCount = 5000;  // more than is looked at in one go

absl::Status Check(DType dtype, const void* data) {
  return CheckFinite({"layer.3.mixer.head.0.key_sums", {dtype, {kCount}, data}});
}

// All bits of numbers of one dtype: of one, and of some that are not finite.
template <typename Bits>
void ExpectFound(DType dtype, Bits one, const std::vector<Bits>& largest, const std::vector<Bits>& bad) {
  std::vector<Bits> values(kCount, one);
  EXPECT_TRUE(Check(dtype, values.data()).ok()) << Name(dtype);
  for (const Bits bits : largest) {
    values[17] = bits;
    EXPECT_TRUE(Check(dtype, values.data()).ok()) << Name(dtype) << " " << static_cast<uint64_t>(bits);
  }
  for (const Bits bits : bad) {
    for (const int64_t at : {int64_t{0}, int64_t{2048}, kCount - 1}) {
      std::vector<Bits> broken(kCount, one);
      broken[static_cast<size_t>(at)] = bits;
      // At an odd address, as within a file.
      std::vector<char> moved(sizeof(Bits) * kCount + 1);
      std::memcpy(moved.data() + 1, broken.data(), sizeof(Bits) * kCount);
      const absl::Status status = Check(dtype, moved.data() + 1);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << Name(dtype);
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("layer 3: state tensor layer.3.mixer.head.0.key_sums: element " + std::to_string(at) +
                            " of 5000 is NaN or infinite"));
    }
  }
}

TEST(FiniteTensorsTest, NanAndInfinityAreFoundInFloatsOfEverySize) {
  ExpectFound<uint32_t>(DType::kF32, 0x3f800000u, {0x7f7fffffu, 0x80000001u, 0},
                        {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xff800001u});
  ExpectFound<uint16_t>(DType::kBF16, 0x3f80, {0x7f7f, 0x8001}, {0x7f80, 0xff80, 0x7fc0, 0x7f81});
  ExpectFound<uint16_t>(DType::kF16, 0x3c00, {0x7bff, 0x8001}, {0x7c00, 0xfc00, 0x7e00});
  ExpectFound<uint64_t>(DType::kF64, 0x3ff0000000000000u, {0x7fefffffffffffffu}, {0x7ff0000000000000u, ~uint64_t{0}});
}

TEST(FiniteTensorsTest, EveryNumberOfElementsIsLookedAtToItsEnd) {
  for (int64_t count = 1; count <= 40; ++count) {
    std::vector<uint16_t> halves(static_cast<size_t>(count) + 1, 0xbf80);
    std::vector<uint32_t> floats(static_cast<size_t>(count) + 1, 0xbf800000u);
    halves[static_cast<size_t>(count)] = 0x7f80;  // behind the end
    floats[static_cast<size_t>(count)] = 0x7f800000u;
    EXPECT_TRUE(AllFinite({DType::kBF16, {count}, halves.data()})) << count;
    EXPECT_TRUE(AllFinite({DType::kF32, {count}, floats.data()})) << count;
    EXPECT_FALSE(AllFinite({DType::kBF16, {count + 1}, halves.data()})) << count;
    EXPECT_FALSE(AllFinite({DType::kF32, {count + 1}, floats.data()})) << count;
  }
}

TEST(FiniteTensorsTest, IntegersAreNeverRefused) {
  const std::vector<int32_t> ints(kCount, -1);
  EXPECT_TRUE(Check(DType::kI32, ints.data()).ok());
  EXPECT_TRUE(Check(DType::kI8, ints.data()).ok());
  EXPECT_TRUE(CheckFinite({"position", {DType::kF32, {0}, nullptr}}).ok());
}

}  // namespace
}  // namespace kvm
