#include "kvm/state/slot_memory.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/kernels/bfloat16.h"

namespace kvm {
namespace {

constexpr int64_t kQk = 3;
constexpr int64_t kV = 2;

// Adds one row whose every number is `value`, float32 readout.
void AddRow(float value, SlotMemory& memory) {
  SlotRows rows = memory.Reserve(1);
  const int64_t i = rows.count++;
  for (int64_t c = 0; c < kQk; ++c) {
    rows.key_sums[i * kQk + c] = value;
    static_cast<float*>(rows.readout_keys)[KeyPanelOffset(i, c, kQk)] = value;
  }
  for (int64_t c = 0; c < kV; ++c) {
    rows.value_sums[i * kV + c] = value;
    static_cast<float*>(rows.readout_values)[i * kV + c] = value;
  }
  rows.radii[i] = value;
  memory.Commit(rows);
}

// Every number of rows begin..end is to be `value` plus the row's index.
void ExpectRows(int64_t begin, int64_t end, float value, const SlotMemory& memory) {
  ASSERT_LE(end, memory.count());
  const KeyValueSegment readout = memory.Readout();
  for (int64_t i = begin; i < end; ++i) {
    const float expected = value + static_cast<float>(i);
    EXPECT_EQ(memory.radii()[i], expected);
    for (int64_t c = 0; c < kQk; ++c) {
      EXPECT_EQ(memory.key_sums()[i * kQk + c], expected);
      EXPECT_EQ(static_cast<const float*>(readout.keys)[KeyPanelOffset(i, c, kQk)], expected);
    }
    for (int64_t c = 0; c < kV; ++c) {
      EXPECT_EQ(memory.value_sums()[i * kV + c], expected);
      EXPECT_EQ(static_cast<const float*>(readout.values)[i * kV + c], expected);
    }
  }
}

// The lanes past the rows.
void ExpectZerosInTheLastPanel(const SlotMemory& memory) {
  const float* keys = static_cast<const float*>(memory.Readout().keys);
  for (int64_t i = memory.count(); i < KeyPanelElements(memory.count(), 1); ++i) {
    for (int64_t c = 0; c < kQk; ++c) EXPECT_EQ(keys[KeyPanelOffset(i, c, kQk)], 0);
  }
}

TEST(SlotMemoryTest, BeginsEmpty) {
  const SlotMemory memory(kQk, kV, DType::kF32);
  EXPECT_EQ(memory.count(), 0);
  EXPECT_EQ(memory.ByteSize(), 0);
  EXPECT_EQ(memory.Readout().count, 0);
  EXPECT_TRUE(memory.key_sums().empty());
}

TEST(SlotMemoryTest, ReserveGivesRoomButNoRows) {
  SlotMemory memory(kQk, kV, DType::kF32);
  const SlotRows rows = memory.Reserve(5);
  EXPECT_EQ(rows.count, 0);
  EXPECT_GE(rows.capacity, 5);
  EXPECT_EQ(rows.qk_dim, kQk);
  EXPECT_EQ(rows.v_dim, kV);
  EXPECT_EQ(memory.count(), 0);
}

TEST(SlotMemoryTest, RowsSurviveGrowth) {
  SlotMemory memory(kQk, kV, DType::kF32);
  for (int i = 0; i < 100; ++i) AddRow(static_cast<float>(i), memory);
  ASSERT_EQ(memory.count(), 100);
  EXPECT_EQ(memory.Readout().count, 100);
  ExpectRows(0, 100, 0, memory);
}

TEST(SlotMemoryTest, GrowingRowByRowReallocatesSeldom) {
  SlotMemory memory(kQk, kV, DType::kF32);
  int moves = 0;
  const float* place = nullptr;
  for (int i = 0; i < 10000; ++i) {
    AddRow(1, memory);
    const float* const now = memory.key_sums().data();
    moves += now != place;
    place = now;
  }
  EXPECT_LE(moves, 20);
}

TEST(SlotMemoryTest, LanesPastTheRowsAreZero) {
  SlotMemory memory(kQk, kV, DType::kF32);
  for (int i = 0; i < 17; ++i) AddRow(1, memory);
  ExpectZerosInTheLastPanel(memory);
  ExpectZerosInTheLastPanel(SlotMemory(memory));
}

TEST(SlotMemoryTest, StorageIsAlignedForVectorLoads) {
  SlotMemory memory(kQk, kV, DType::kBF16);
  for (int64_t rows : {1, 100, 5000}) {
    const SlotRows view = memory.Reserve(rows);
    for (const void* p : {static_cast<const void*>(view.key_sums), static_cast<const void*>(view.value_sums),
                          static_cast<const void*>(view.readout_keys), static_cast<const void*>(view.readout_values)}) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
    }
  }
}

TEST(SlotMemoryTest, ReadoutIsAStateSegmentOfTheDtype) {
  SlotMemory memory(kQk, kV, DType::kBF16);
  SlotRows rows = memory.Reserve(2);
  static_cast<BFloat16*>(rows.readout_values)[kV] = ToBFloat16(3);
  rows.count = 2;
  memory.Commit(rows);
  const KeyValueSegment readout = memory.Readout();
  EXPECT_TRUE(readout.is_state);
  EXPECT_EQ(readout.dtype, DType::kBF16);
  EXPECT_EQ(readout.count, 2);
  EXPECT_EQ(ToFloat(static_cast<const BFloat16*>(readout.values)[kV]), 3);
}

TEST(SlotMemoryTest, ByteSizeCountsRowsInUse) {
  SlotMemory memory(kQk, kV, DType::kF32);
  AddRow(1, memory);
  AddRow(2, memory);
  // Readout keys lie in panels of 16.
  EXPECT_EQ(memory.ByteSize(), 2 * 4 * (3 + 2 + 1) + 4 * (16 * 3 + 2 * 2));
  EXPECT_EQ(SlotMemory::ByteSizeOf(10, 128, 64, DType::kBF16), 10 * 4 * 193 + 2 * (16 * 128 + 10 * 64));
  EXPECT_EQ(SlotMemory::ByteSizeOf(17, 128, 64, DType::kBF16), 17 * 4 * 193 + 2 * (32 * 128 + 17 * 64));
}

TEST(SlotMemoryTest, IntegerRowsHaveTwoScales) {
  SlotMemory memory(kQk, kV, DType::kI8);
  SlotRows rows = memory.Reserve(2);
  static_cast<int8_t*>(rows.readout_keys)[KeyPanelOffset(1, 2, kQk)] = -127;
  static_cast<int8_t*>(rows.readout_values)[kV] = 5;
  rows.readout_key_scales[1] = 0.5f;
  rows.readout_value_scales[1] = 0.25f;
  rows.count = 2;
  memory.Commit(rows);
  memory.Reserve(1000);
  const KeyValueSegment readout = memory.Readout();
  EXPECT_EQ(readout.dtype, DType::kI8);
  EXPECT_EQ(static_cast<const int8_t*>(readout.keys)[KeyPanelOffset(1, 2, kQk)], -127);
  EXPECT_EQ(static_cast<const int8_t*>(readout.values)[kV], 5);
  EXPECT_EQ(readout.key_scales[1], 0.5f);
  EXPECT_EQ(readout.value_scales[1], 0.25f);
  EXPECT_EQ(memory.ByteSize(), 2 * 4 * (3 + 2 + 1) + (16 * 3 + 2 * 2) + 2 * 4 * 2);
  EXPECT_EQ(SlotMemory(kQk, kV, DType::kF32).Readout().key_scales, nullptr);
}

TEST(SlotMemoryTest, CopiesAreIndependent) {
  SlotMemory memory(kQk, kV, DType::kF32);
  AddRow(1, memory);
  SlotMemory copy = memory;
  AddRow(2, copy);
  copy.Reserve(0).key_sums[0] = 9;
  EXPECT_EQ(memory.count(), 1);
  EXPECT_EQ(memory.key_sums()[0], 1);
  EXPECT_EQ(copy.count(), 2);
  EXPECT_EQ(copy.key_sums()[0], 9);
}

TEST(SlotMemoryTest, CopiesGrowApart) {
  // Few rows, and so many that growing moves pages.
  for (const int64_t count : {1, 16, 100, 10000}) {
    SlotMemory memory(kQk, kV, DType::kF32);
    for (int64_t i = 0; i < count; ++i) AddRow(static_cast<float>(i), memory);
    SlotMemory copy = memory;
    for (int64_t i = count; i < 3 * count; ++i) {
      AddRow(static_cast<float>(i + 1), memory);
      AddRow(static_cast<float>(i + 2), copy);
    }
    for (const SlotMemory* each : {&memory, &copy}) {
      EXPECT_EQ(each->count(), 3 * count);
      ExpectRows(0, count, 0, *each);
      ExpectZerosInTheLastPanel(*each);
    }
    ExpectRows(count, 3 * count, 1, memory);
    ExpectRows(count, 3 * count, 2, copy);
  }
}

StateFields FieldsOf(const SlotMemory& memory) {
  StateFields fields;
  memory.Save(StateWriter(&fields));
  return fields;
}

absl::Status RestoreInto(SlotMemory& memory, const StateFields& fields, int64_t min_rows, int64_t max_rows) {
  const StateReader in(fields);
  const absl::Status status = memory.Restore(in, min_rows, max_rows);
  return status.ok() ? in.Finish() : status;
}

TEST(SlotMemoryTest, SavesWhatByteSizeCounts) {
  for (DType readout : {DType::kF32, DType::kBF16, DType::kI8}) {
    for (int64_t count : {0, 1, 16, 17}) {
      SlotMemory memory(kQk, kV, readout);
      SlotRows rows = memory.Reserve(count);
      rows.count = count;
      memory.Commit(rows);
      EXPECT_EQ(FieldsOf(memory).ByteSize(), memory.ByteSize()) << Name(readout) << " " << count;
    }
  }
}

TEST(SlotMemoryTest, RestoredRowsAreTheSameAndGrow) {
  for (int count : {0, 1, 16, 40}) {
    SlotMemory memory(kQk, kV, DType::kF32), restored(kQk, kV, DType::kF32);
    for (int i = 0; i < count; ++i) AddRow(static_cast<float>(i), memory);
    ASSERT_TRUE(RestoreInto(restored, FieldsOf(memory), 0, 40).ok());
    ExpectZerosInTheLastPanel(restored);
    for (int i = count; i < 100; ++i) AddRow(static_cast<float>(i), restored);
    ASSERT_EQ(restored.count(), 100);
    ExpectRows(0, 100, 0, restored);
  }
}

TEST(SlotMemoryTest, IntegersAreRestoredWithTheirScales) {
  SlotMemory memory(kQk, kV, DType::kI8), restored(kQk, kV, DType::kI8);
  SlotRows rows = memory.Reserve(1);
  static_cast<int8_t*>(rows.readout_keys)[KeyPanelOffset(0, 2, kQk)] = -127;
  static_cast<int8_t*>(rows.readout_values)[1] = 5;
  rows.readout_key_scales[0] = 0.5f;
  rows.readout_value_scales[0] = 0.25f;
  rows.count = 1;
  memory.Commit(rows);
  ASSERT_TRUE(RestoreInto(restored, FieldsOf(memory), 1, 1).ok());
  const KeyValueSegment readout = restored.Readout();
  EXPECT_EQ(static_cast<const int8_t*>(readout.keys)[KeyPanelOffset(0, 2, kQk)], -127);
  EXPECT_EQ(static_cast<const int8_t*>(readout.values)[1], 5);
  EXPECT_EQ(readout.key_scales[0], 0.5f);
  EXPECT_EQ(readout.value_scales[0], 0.25f);
}

TEST(SlotMemoryTest, RowCountsThatCannotBeAreRefused) {
  SlotMemory memory(kQk, kV, DType::kF32);
  for (int i = 0; i < 5; ++i) AddRow(1, memory);
  const auto expect_refused = [](const StateFields& fields, int64_t min, int64_t max, const std::string& name) {
    SlotMemory restored(kQk, kV, DType::kF32);
    const absl::Status status = RestoreInto(restored, fields, min, max);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(name));
  };
  StateFields fields = FieldsOf(memory);
  expect_refused(fields, 6, 10, "rows: got 5, expected 6 to 10");
  expect_refused(fields, 0, 4, "rows: got 5, expected 0 to 4");
  // More than there is memory for, and fewer than there are.
  fields.numbers[0].value = int64_t{1} << 48;
  expect_refused(fields, 0, int64_t{1} << 48, "key_sums");
  fields.numbers[0].value = 4;
  expect_refused(fields, 0, 5, "key_sums");
}

}  // namespace
}  // namespace kvm
