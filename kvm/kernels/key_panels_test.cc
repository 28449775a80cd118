#include "kvm/kernels/key_panels.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/bfloat16.h"
#include "kvm/kernels/key_value.h"

namespace kvm {
namespace {

float KeyAt(int64_t i, int64_t c) { return static_cast<float>(i) + static_cast<float>(c) / 8; }

// `count` keys of `dim` channels, rows `stride` apart.
std::vector<float> Keys(int64_t count, int64_t dim, int64_t stride) {
  std::vector<float> keys(count * stride, -1);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t c = 0; c < dim; ++c) keys[i * stride + c] = KeyAt(i, c);
  }
  return keys;
}

TEST(KeyPanelsTest, EveryKeyLandsAtItsOffsetAndOtherLanesStay) {
  for (const int64_t dim : {1, 3, 20}) {
    for (const int64_t first : {0, 1, 15, 16, 37}) {
      for (const int64_t count : {0, 1, 16, 33}) {
        const std::vector<float> keys = Keys(count, dim, dim + 2);
        std::vector<float> panels(KeyPanelElements(first + count, dim), -7);
        PackKeys({keys.data(), count, dim, dim + 2}, first, DType::kF32, panels.data());
        for (int64_t i = 0; i < KeyPanelElements(first + count, 1); ++i) {
          for (int64_t c = 0; c < dim; ++c) {
            const bool packed = i >= first && i < first + count;
            EXPECT_EQ(panels[KeyPanelOffset(i, c, dim)], packed ? KeyAt(i - first, c) : -7) << i << ", " << c;
          }
        }
      }
    }
  }
}

TEST(KeyPanelsTest, UnpackingGivesWhatWasPacked) {
  const std::vector<float> keys = Keys(21, 5, 5);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    std::vector<char> panels(KeyPanelElements(24, 5) * SizeOf(dtype));
    PackKeys({keys.data(), 21, 5}, 3, dtype, panels.data());
    std::vector<float> out(4 * 8, -1);
    UnpackKeys(panels.data(), 3 + 17, dtype, {out.data(), 4, 5, 8});
    for (int64_t i = 0; i < 4; ++i) {
      for (int64_t c = 0; c < 5; ++c) {
        const float key = KeyAt(17 + i, c);
        EXPECT_EQ(out[i * 8 + c], dtype == DType::kF32 ? key : ToFloat(ToBFloat16(key)));
      }
      for (int64_t c = 5; c < 8; ++c) EXPECT_EQ(out[i * 8 + c], -1);
    }
  }
}

TEST(KeyPanelsDeathTest, WrongCallsSayWhatIsWrong) {
  std::vector<float> keys(6), panels(KeyPanelElements(2, 3));
  EXPECT_DEATH(PackKeys({keys.data(), 2, 3}, -1, DType::kF32, panels.data()),
               "^PackKeys: first is -1, expected at least 0");
  EXPECT_DEATH(PackKeys({keys.data(), 2, 3}, 0, DType::kI8, panels.data()),
               "^PackKeys: expected panels of F32 or BF16");
  EXPECT_DEATH(PackKeys({keys.data(), 2, 3}, 0, DType::kF32, nullptr), "^PackKeys: expected panels in memory");
  EXPECT_DEATH(PackKeys({nullptr, 2, 3}, 0, DType::kF32, panels.data()),
               "^PackKeys: keys is \\[2, 3\\] at a null address");
  EXPECT_DEATH(UnpackKeys(panels.data(), -1, DType::kF32, {keys.data(), 2, 3}), "^UnpackKeys: first is -1");
  EXPECT_DEATH(UnpackKeys(panels.data(), 0, DType::kI32, {keys.data(), 2, 3}), "^UnpackKeys: expected panels of F32");
  EXPECT_DEATH(UnpackKeys(nullptr, 0, DType::kF32, {keys.data(), 2, 3}), "^UnpackKeys: expected panels in memory");
  EXPECT_DEATH(UnpackKeys(panels.data(), 0, DType::kF32, {keys.data(), 2, 3, 2}),
               "^UnpackKeys: rows of keys are 2 elements apart");
}

}  // namespace
}  // namespace kvm
