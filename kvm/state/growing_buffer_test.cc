#include "kvm/state/growing_buffer.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace kvm {
namespace {

// Smaller and larger than what Linux is asked to map.
constexpr int64_t kSizes[] = {1, 63, 64, 1000, 50000, 65535, 65536, 65537, 300000, 1000000};

unsigned char* Bytes(GrowingBuffer& buffer) { return static_cast<unsigned char*>(buffer.data()); }

std::vector<unsigned char> Content(const GrowingBuffer& buffer) {
  const auto* bytes = static_cast<const unsigned char*>(buffer.data());
  return std::vector<unsigned char>(bytes, bytes + buffer.size());
}

// None of them zero, and neighbours and pages told apart.
unsigned char ByteAt(int64_t i) { return static_cast<unsigned char>(1 + i % 251); }

// Writes bytes begin.. to the end.
void Fill(int64_t begin, GrowingBuffer& buffer) {
  for (int64_t i = begin; i < buffer.size(); ++i) Bytes(buffer)[i] = ByteAt(i);
}

// What Fill(0) writes to `written` bytes, and zeros.
std::vector<unsigned char> FilledThenZeros(int64_t written, int64_t size) {
  std::vector<unsigned char> bytes(size);
  for (int64_t i = 0; i < written; ++i) bytes[i] = ByteAt(i);
  return bytes;
}

GrowingBuffer Filled(int64_t size) {
  GrowingBuffer buffer;
  buffer.Resize(size);
  Fill(0, buffer);
  return buffer;
}

TEST(GrowingBufferTest, BeginsEmpty) {
  const GrowingBuffer buffer;
  EXPECT_EQ(buffer.size(), 0);
  EXPECT_EQ(buffer.data(), nullptr);
}

TEST(GrowingBufferTest, IsZeroAndStartsOnACacheLine) {
  for (const int64_t size : kSizes) {
    GrowingBuffer buffer;
    buffer.Resize(size);
    EXPECT_EQ(Content(buffer), FilledThenZeros(0, size));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
  }
}

TEST(GrowingBufferTest, GrowingKeepsWhatWasWrittenAndAddsZeros) {
  for (const int64_t from : kSizes) {
    for (const int64_t to : kSizes) {
      if (from >= to) continue;
      GrowingBuffer buffer = Filled(from);
      buffer.Resize(to);
      EXPECT_EQ(Content(buffer), FilledThenZeros(from, to)) << from << " to " << to;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    }
  }
}

TEST(GrowingBufferTest, GrowsStepByStepThroughAllSizes) {
  GrowingBuffer buffer;
  int64_t written = 0;
  for (const int64_t size : kSizes) {
    buffer.Resize(size);
    ASSERT_EQ(Content(buffer), FilledThenZeros(written, size));
    Fill(written, buffer);
    written = size;
  }
}

TEST(GrowingBufferTest, ManyTinyGrowthsSeldomMoveIt) {
  GrowingBuffer buffer;
  int moves = 0;
  for (int64_t size = 1; size <= 500000; ++size) {
    const void* const before = buffer.data();
    buffer.Resize(size);
    moves += buffer.data() != before;
    ASSERT_EQ(Bytes(buffer)[size - 1], 0);
    Bytes(buffer)[size - 1] = ByteAt(size - 1);
  }
  EXPECT_EQ(Content(buffer), FilledThenZeros(500000, 500000));
  EXPECT_LE(moves, 40);
}

TEST(GrowingBufferTest, ShrinkingKeepsTheRestAndItsPlace) {
  for (const int64_t size : kSizes) {
    GrowingBuffer buffer = Filled(size / 2);
    buffer.Resize(size);
    const void* const place = buffer.data();
    buffer.Resize(size / 2);
    EXPECT_EQ(Content(buffer), FilledThenZeros(size / 2, size / 2));
    buffer.Resize(size);
    EXPECT_EQ(Content(buffer), FilledThenZeros(size / 2, size));
    EXPECT_EQ(buffer.data(), place);
  }
}

TEST(GrowingBufferTest, CopiesAreEqualAndIndependent) {
  for (const int64_t size : kSizes) {
    GrowingBuffer buffer = Filled(size);
    GrowingBuffer copy = buffer;
    EXPECT_EQ(Content(copy), FilledThenZeros(size, size));
    std::fill_n(Bytes(copy), size, 0);
    copy.Resize(2 * size);
    EXPECT_EQ(Content(buffer), FilledThenZeros(size, size));
    buffer.Resize(3 * size);
    EXPECT_EQ(Content(copy), FilledThenZeros(0, 2 * size));
    EXPECT_EQ(Content(buffer), FilledThenZeros(size, 3 * size));
  }
}

TEST(GrowingBufferTest, CopiesHaveZerosWhereTheOriginalWasLeftOut) {
  for (const int64_t size : kSizes) {
    GrowingBuffer buffer = Filled(2 * size);
    buffer.Resize(size);
    GrowingBuffer copy = buffer;
    copy.Resize(2 * size);
    EXPECT_EQ(Content(copy), FilledThenZeros(size, 2 * size));
  }
}

TEST(GrowingBufferTest, CopiesOfNothingAreNothing) {
  GrowingBuffer buffer = Filled(100);
  buffer.Resize(0);
  const GrowingBuffer copy = buffer;
  EXPECT_EQ(copy.size(), 0);
  EXPECT_EQ(copy.data(), nullptr);
}

TEST(GrowingBufferTest, MovesKeepThePlaceAndLeaveNothing) {
  for (const int64_t size : kSizes) {
    GrowingBuffer buffer = Filled(size);
    const void* const place = buffer.data();
    GrowingBuffer moved = std::move(buffer);
    EXPECT_EQ(moved.data(), place);
    EXPECT_EQ(Content(moved), FilledThenZeros(size, size));
    EXPECT_EQ(buffer.size(), 0);  // NOLINT: used after the move on purpose
    EXPECT_EQ(buffer.data(), nullptr);
    buffer.Resize(size);
    EXPECT_EQ(Content(buffer), FilledThenZeros(0, size));
  }
}

TEST(GrowingBufferTest, AssignmentReplacesWhatWasThere) {
  for (const int64_t size : kSizes) {
    const GrowingBuffer buffer = Filled(size);
    for (const int64_t old_size : kSizes) {
      GrowingBuffer other = Filled(old_size);
      other = buffer;
      EXPECT_EQ(Content(other), FilledThenZeros(size, size));
      other = Filled(old_size);
      EXPECT_EQ(Content(other), FilledThenZeros(old_size, old_size));
    }
  }
}

TEST(GrowingBufferTest, ShowsItsBytesAsFloats) {
  GrowingBuffer buffer;
  buffer.Resize(2 * sizeof(float));
  buffer.floats()[1] = 0.5f;
  const GrowingBuffer copy = buffer;
  EXPECT_EQ(copy.floats(), copy.data());
  EXPECT_EQ(copy.floats()[0], 0);
  EXPECT_EQ(copy.floats()[1], 0.5f);
}

}  // namespace
}  // namespace kvm
