#include "kvm/state/block_window.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
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

// Where the keys of each block lie.
std::vector<const void*> BlocksOf(const BlockWindow& window) {
  std::pmr::vector<KeyValueSegment> segments;
  window.AppendSegments(0, &segments);
  std::vector<const void*> blocks;
  for (const KeyValueSegment& segment : segments) blocks.push_back(segment.keys);
  return blocks;
}

TEST(BlockWindowTest, CopiesShareAllBlocksButTheOneThatIsWrittenTo) {
  BlockWindow window(kShape);
  AppendPositions(10, kShape, window);
  BlockWindow copy = window;
  const std::vector<const void*> blocks = BlocksOf(window);
  EXPECT_EQ(BlocksOf(copy), blocks);
  AppendPositions(1, kShape, copy);
  EXPECT_EQ(BlocksOf(window), blocks);
  const std::vector<const void*> of_copy = BlocksOf(copy);
  EXPECT_EQ(of_copy[0], blocks[0]);
  EXPECT_EQ(of_copy[1], blocks[1]);
  EXPECT_NE(of_copy[2], blocks[2]);
  ExpectHolds(window, kShape);
  ExpectHolds(copy, kShape);
  // Nobody shares the last block of either now.
  AppendPositions(1, kShape, window);
  EXPECT_EQ(BlocksOf(window), blocks);
}

TEST(BlockWindowTest, NewestBlocksBegin) {
  const int64_t begins[] = {0, 0, 0, 0, 0, 0, 0, 3, 3, 3, 6};
  for (int64_t position = 0; position <= 10; ++position) {
    EXPECT_EQ(NewestBlocksBegin(position, 3, 2), begins[position]) << position;
  }
}

StateFields FieldsOf(const BlockWindow& window) {
  StateFields fields;
  window.Save(StateWriter(&fields));
  return fields;
}

absl::Status RestoreInto(BlockWindow& window, const StateFields& fields, int64_t begin, int64_t end) {
  const StateReader in(fields);
  const absl::Status status = window.Restore(in, begin, end);
  return status.ok() ? in.Finish() : status;
}

TEST(BlockWindowTest, SavesBlocksAsTheyLie) {
  BlockWindow window(kShape);
  AppendPositions(10, kShape, window);
  window.DropBefore(4);
  const StateFields fields = FieldsOf(window);
  std::vector<std::string> names;
  for (const StateTensor& tensor : fields.tensors) names.push_back(tensor.name);
  EXPECT_THAT(names, ::testing::ElementsAre("block.1.keys", "block.1.values", "block.2.keys", "block.2.values"));
  EXPECT_EQ(fields.tensors[0].view.shape, (Shape{2, 1, 3, 16}));
  EXPECT_EQ(fields.tensors[1].view.shape, (Shape{2, 4, 5}));
  EXPECT_EQ(fields.tensors[0].view.data, BlocksOf(window)[0]);
  EXPECT_EQ(fields.ByteSize(), window.ByteSize());
}

TEST(BlockWindowTest, RestoredWindowsGoOn) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    BlockWindowShape shape = kShape;
    shape.dtype = dtype;
    for (const int64_t end : {0, 1, 4, 8, 10}) {
      BlockWindow window(shape);
      AppendPositions(end, shape, window);
      window.DropBefore(4);
      BlockWindow restored(shape);
      ASSERT_TRUE(RestoreInto(restored, FieldsOf(window), window.begin(), end).ok());
      EXPECT_EQ(restored.ByteSize(), window.ByteSize());
      AppendPositions(7, shape, restored);
      EXPECT_EQ(restored.begin(), window.begin());
      EXPECT_EQ(restored.end(), end + 7);
      ExpectHolds(restored, shape);
    }
  }
}

void ExpectRefused(const StateFields& fields, int64_t begin, int64_t end, const std::string& name) {
  BlockWindow window(kShape);
  const absl::Status status = RestoreInto(window, fields, begin, end);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(name));
}

TEST(BlockWindowTest, OtherPositionsAreRefused) {
  BlockWindow window(kShape);
  AppendPositions(10, kShape, window);
  window.DropBefore(4);
  const StateFields fields = FieldsOf(window);
  ExpectRefused(fields, 0, 10, "begin");
  ExpectRefused(fields, 8, 10, "begin");
  ExpectRefused(fields, 4, 11, "end");
}

TEST(BlockWindowTest, MoreBlocksThanThereAreAreRefusedHoweverMany) {
  BlockWindow window(kShape);
  AppendPositions(10, kShape, window);
  StateFields fields = FieldsOf(window);
  fields.numbers[1].value = int64_t{1} << 48;
  ExpectRefused(fields, 0, int64_t{1} << 48, "block.3.keys");
}

TEST(BlockWindowTest, FewerBlocksLeaveSomeOver) {
  BlockWindow window(kShape);
  AppendPositions(10, kShape, window);
  StateFields fields = FieldsOf(window);
  fields.numbers[1].value = 8;
  ExpectRefused(fields, 0, 8, "block.2.keys");
}

TEST(BlockWindowTest, BlocksOfAnotherShapeAreRefused) {
  BlockWindowShape shape = kShape;
  shape.dtype = DType::kBF16;
  BlockWindow halves(shape);
  AppendPositions(3, shape, halves);
  ExpectRefused(FieldsOf(halves), 0, 3, "block.0.keys: got BF16");
  shape = kShape;
  shape.v_dim = 6;
  BlockWindow wide(shape);
  AppendPositions(3, shape, wide);
  ExpectRefused(FieldsOf(wide), 0, 3, "block.0.values: got F32 [2, 4, 6]");
}

}  // namespace
}  // namespace kvm
