#include "kvm/state/block_window.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/bfloat16.h"

namespace kvm {
namespace {

constexpr BlockWindowShape kShape = {/*num_heads=*/2, /*qk_dim=*/3, /*v_dim=*/5, /*block_len=*/4, DType::kF32};

// The number at (position, column): told apart by both and exact in bfloat16 as long as it is below 256.
float KeyAt(int64_t position, int64_t column) { return static_cast<float>(position * 8 + column); }
float ValueAt(int64_t position, int64_t column) { return -static_cast<float>(position * 10 + column); }

void AppendPositions(int64_t count, const BlockWindowShape& shape, BlockWindow& window) {
  const int64_t key_cols = shape.num_heads * shape.qk_dim;
  const int64_t value_cols = shape.num_heads * shape.v_dim;
  std::vector<float> keys(count * key_cols);
  std::vector<float> values(count * value_cols);
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t c = 0; c < key_cols; ++c) keys[r * key_cols + c] = KeyAt(window.end() + r, c);
    for (int64_t c = 0; c < value_cols; ++c) values[r * value_cols + c] = ValueAt(window.end() + r, c);
  }
  window.Append({keys.data(), count, key_cols}, {values.data(), count, value_cols});
}

void ExpectHolds(const BlockWindow& window, const BlockWindowShape& shape) {
  const int64_t count = window.end() - window.begin();
  for (int64_t h = 0; h < shape.num_heads; ++h) {
    std::vector<float> keys(count * shape.qk_dim);
    std::vector<float> values(count * shape.v_dim);
    window.Read(h, window.begin(), count, {keys.data(), count, shape.qk_dim}, {values.data(), count, shape.v_dim});
    for (int64_t r = 0; r < count; ++r) {
      const int64_t p = window.begin() + r;
      for (int64_t c = 0; c < shape.qk_dim; ++c) {
        EXPECT_EQ(keys[r * shape.qk_dim + c], KeyAt(p, h * shape.qk_dim + c));
      }
      for (int64_t c = 0; c < shape.v_dim; ++c) {
        EXPECT_EQ(values[r * shape.v_dim + c], ValueAt(p, h * shape.v_dim + c));
      }
    }
  }
}

TEST(BlockWindowTest, BeginsEmpty) {
  const BlockWindow window(kShape);
  EXPECT_EQ(window.begin(), 0);
  EXPECT_EQ(window.end(), 0);
  EXPECT_EQ(window.ByteSize(), 0);
  std::pmr::vector<KeyValueSegment> segments;
  window.AppendSegments(0, &segments);
  EXPECT_TRUE(segments.empty());
}

TEST(BlockWindowTest, HoldsWhatWasAppendedInAnyPieces) {
  for (int64_t piece : {1, 2, 3, 4, 5, 11}) {
    BlockWindow window(kShape);
    for (int i = 0; i < 2; ++i) AppendPositions(piece, kShape, window);
    EXPECT_EQ(window.end(), 2 * piece);
    ExpectHolds(window, kShape);
  }
}

TEST(BlockWindowTest, BFloat16HoldsRoundedNumbers) {
  BlockWindowShape shape = kShape;
  shape.dtype = DType::kBF16;
  BlockWindow window(shape);
  AppendPositions(9, shape, window);
  ExpectHolds(window, shape);
  const std::vector<float> odd(10, 1.00390625f + 1e-4f);  // between 1 and 1 + 1/128
  window.Append({odd.data(), 1, 6}, {odd.data(), 1, 10});
  std::vector<float> key(3), value(5);
  window.Read(1, 9, 1, {key.data(), 1, 3}, {value.data(), 1, 5});
  EXPECT_EQ(key[0], 1.0078125f);
  EXPECT_EQ(value[4], 1.0078125f);
}

TEST(BlockWindowTest, DropsWholeBlocksOnly) {
  BlockWindow window(kShape);
  AppendPositions(10, kShape, window);
  window.DropBefore(3);
  EXPECT_EQ(window.begin(), 0);
  window.DropBefore(4);
  EXPECT_EQ(window.begin(), 4);
  ExpectHolds(window, kShape);
  window.DropBefore(2);
  EXPECT_EQ(window.begin(), 4);
  window.DropBefore(1000);  // the block of 8 and 9 is still being filled
  EXPECT_EQ(window.begin(), 8);
  AppendPositions(3, kShape, window);
  EXPECT_EQ(window.end(), 13);
  ExpectHolds(window, kShape);
}

TEST(BlockWindowTest, MayDropEverythingAndGoOn) {
  BlockWindow window(kShape);
  AppendPositions(8, kShape, window);
  window.DropBefore(8);
  EXPECT_EQ(window.begin(), 8);
  EXPECT_EQ(window.end(), 8);
  EXPECT_EQ(window.ByteSize(), 0);
  AppendPositions(5, kShape, window);
  EXPECT_EQ(window.begin(), 8);
  EXPECT_EQ(window.end(), 13);
  ExpectHolds(window, kShape);
}

TEST(BlockWindowTest, SegmentsAreBlocksWithTheirPositions) {
  BlockWindow window(kShape);
  AppendPositions(10, kShape, window);
  window.DropBefore(4);
  std::pmr::vector<KeyValueSegment> segments(1);  // appended to, not replaced
  window.AppendSegments(1, &segments);
  ASSERT_EQ(segments.size(), 3u);
  EXPECT_EQ(segments[1].first_position, 4);
  EXPECT_EQ(segments[1].count, 4);
  EXPECT_EQ(segments[2].first_position, 8);
  EXPECT_EQ(segments[2].count, 2);
  EXPECT_FALSE(segments[2].is_state);
  EXPECT_EQ(segments[2].dtype, DType::kF32);
  EXPECT_EQ(static_cast<const float*>(segments[2].keys)[KeyPanelOffset(1, 2, kShape.qk_dim)], KeyAt(9, 5));
  EXPECT_EQ(static_cast<const float*>(segments[2].values)[1 * kShape.v_dim + 4], ValueAt(9, 9));
}

TEST(BlockWindowTest, LanesPastTheEndAreZero) {
  BlockWindow window(kShape);
  AppendPositions(2, kShape, window);
  std::pmr::vector<KeyValueSegment> segments;
  window.AppendSegments(0, &segments);
  for (int64_t i = 2; i < kKeyPanel; ++i) {
    EXPECT_EQ(static_cast<const float*>(segments[0].keys)[KeyPanelOffset(i, 0, kShape.qk_dim)], 0);
  }
}

TEST(BlockWindowTest, StorageIsAlignedForVectorLoads) {
  BlockWindow window(kShape);
  AppendPositions(9, kShape, window);
  std::pmr::vector<KeyValueSegment> segments;
  window.AppendSegments(0, &segments);
  for (const KeyValueSegment& segment : segments) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(segment.keys) % 64, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(segment.values) % 64, 0u);
  }
}

TEST(BlockWindowTest, ByteSizeCountsBlocksInFull) {
  EXPECT_EQ(BlockWindow::BlockByteSize(kShape), 2 * (16 * 3 + 4 * 5) * 4);  // keys are padded to one panel of 16
  BlockWindow window(kShape);
  AppendPositions(1, kShape, window);
  EXPECT_EQ(window.ByteSize(), BlockWindow::BlockByteSize(kShape));
  AppendPositions(4, kShape, window);
  EXPECT_EQ(window.ByteSize(), 2 * BlockWindow::BlockByteSize(kShape));
}

TEST(BlockWindowTest, CopiesAreIndependent) {
  BlockWindow window(kShape);
  AppendPositions(6, kShape, window);
  BlockWindow copy = window;
  AppendPositions(3, kShape, copy);
  copy.DropBefore(4);
  EXPECT_EQ(window.begin(), 0);
  EXPECT_EQ(window.end(), 6);
  ExpectHolds(window, kShape);
  ExpectHolds(copy, kShape);
}

}  // namespace
}  // namespace kvm
