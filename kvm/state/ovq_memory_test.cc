#include "kvm/state/ovq_memory.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

constexpr int64_t kDim = 3;

// Adds one centroid whose every number is `x`.
void Add(float x, OvqMemory& memory) {
  OvqDictionary dictionary = memory.Reserve(memory.count() + 1);
  const int64_t i = dictionary.count++;
  for (int64_t c = 0; c < kDim; ++c) {
    dictionary.keys[KeyPanelOffset(i, c, kDim)] = x;
    dictionary.values[i * kDim + c] = -x;
  }
  dictionary.counts[i] = 2 * x;
  dictionary.log_counts[i] = 3 * x;
  memory.Commit(dictionary);
}

void ExpectHolds(int64_t count, const OvqMemory& memory) {
  ASSERT_EQ(memory.count(), count);
  std::vector<float> keys(count * kDim), values(count * kDim), counts(count);
  memory.Read({keys.data(), count, kDim}, {values.data(), count, kDim}, absl::MakeSpan(counts));
  const KeyValueSegment readout = memory.Readout(true);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t c = 0; c < kDim; ++c) {
      EXPECT_EQ(keys[i * kDim + c], i);
      EXPECT_EQ(values[i * kDim + c], -i);
      EXPECT_EQ(static_cast<const float*>(readout.keys)[KeyPanelOffset(i, c, kDim)], i);
      EXPECT_EQ(static_cast<const float*>(readout.values)[i * kDim + c], -i);
    }
    EXPECT_EQ(counts[i], 2 * i);
    EXPECT_EQ(readout.biases[i], 3 * i);
  }
}

TEST(OvqMemoryTest, BeginsEmpty) {
  const OvqMemory memory(kDim);
  EXPECT_EQ(memory.count(), 0);
  EXPECT_EQ(memory.ByteSize(), 0);
  EXPECT_EQ(memory.Readout(true).count, 0);
}

TEST(OvqMemoryTest, ReserveGivesRoomInWholePanelsButNoCentroids) {
  OvqMemory memory(kDim);
  const OvqDictionary dictionary = memory.Reserve(5);
  EXPECT_EQ(dictionary.count, 0);
  EXPECT_EQ(dictionary.dim, kDim);
  EXPECT_EQ(dictionary.capacity, kKeyPanel);
  EXPECT_EQ(memory.count(), 0);
}

TEST(OvqMemoryTest, CentroidsSurviveGrowth) {
  OvqMemory memory(kDim);
  for (int i = 0; i < 100; ++i) Add(static_cast<float>(i), memory);
  ExpectHolds(100, memory);
  EXPECT_EQ(memory.ByteSize(), (112 * 3 + 100 * (3 + 1 + 1)) * 4);  // keys lie in panels of 16
}

TEST(OvqMemoryTest, ReadoutIsAStateSegmentWithBiasesIfWanted) {
  OvqMemory memory(kDim);
  Add(0, memory);
  const KeyValueSegment readout = memory.Readout(false);
  EXPECT_TRUE(readout.is_state);
  EXPECT_EQ(readout.dtype, DType::kF32);
  EXPECT_EQ(readout.count, 1);
  EXPECT_EQ(readout.biases, nullptr);
}

TEST(OvqMemoryTest, CopiesAreIndependent) {
  OvqMemory memory(kDim);
  Add(0, memory);
  OvqMemory copy = memory;
  Add(1, copy);
  ExpectHolds(1, memory);
  ExpectHolds(2, copy);
  EXPECT_NE(memory.Readout(false).keys, copy.Readout(false).keys);
}

TEST(OvqMemoryTest, CopiesGrowApart) {
  // Few centroids, and so many that growing moves pages.
  for (const int64_t count : {1, 16, 100, 10000}) {
    OvqMemory memory(kDim);
    for (int64_t i = 0; i < count; ++i) Add(static_cast<float>(i), memory);
    OvqMemory copy = memory;
    for (int64_t i = count; i < 3 * count; ++i) {
      Add(static_cast<float>(i), memory);
      Add(static_cast<float>(i), copy);
    }
    ExpectHolds(3 * count, memory);
    ExpectHolds(3 * count, copy);
  }
}

TEST(OvqMemoryTest, LanesPastTheCentroidsAreZeroInACopyToo) {
  OvqMemory memory(kDim);
  for (int i = 0; i < 17; ++i) Add(1, memory);
  const OvqMemory copy = memory;
  for (const KeyValueSegment& readout : {memory.Readout(false), copy.Readout(false)}) {
    const float* keys = static_cast<const float*>(readout.keys);
    for (int64_t i = 17; i < 32; ++i) {
      for (int64_t c = 0; c < kDim; ++c) EXPECT_EQ(keys[KeyPanelOffset(i, c, kDim)], 0);
    }
  }
}

StateFields FieldsOf(const OvqMemory& memory) {
  StateFields fields;
  memory.Save(StateWriter(&fields));
  return fields;
}

TEST(OvqMemoryTest, RestoredDictionariesGoOn) {
  for (int count : {0, 1, 16, 40}) {
    OvqMemory memory(kDim), restored(kDim);
    for (int i = 0; i < count; ++i) Add(static_cast<float>(i), memory);
    const StateFields fields = FieldsOf(memory);
    EXPECT_EQ(fields.ByteSize(), memory.ByteSize());
    const StateReader in(fields);
    ASSERT_TRUE(restored.Restore(in, count).ok());
    EXPECT_TRUE(in.Finish().ok());
    for (int i = count; i < 100; ++i) Add(static_cast<float>(i), restored);
    ExpectHolds(100, restored);
  }
}

TEST(OvqMemoryTest, OtherNumbersOfCentroidsAreRefused) {
  OvqMemory memory(kDim), restored(kDim);
  Add(0, memory);
  StateFields fields = FieldsOf(memory);
  const auto message = [&](int64_t centroids) {
    return std::string(restored.Restore(StateReader(fields), centroids).message());
  };
  EXPECT_THAT(message(2), ::testing::HasSubstr("centroids: got 1, expected 2"));
  // More than there is memory for.
  fields.numbers[0].value = int64_t{1} << 40;
  EXPECT_THAT(message(int64_t{1} << 40), ::testing::HasSubstr("keys: got F32 [1, 3, 16]"));
}

}  // namespace
}  // namespace kvm
