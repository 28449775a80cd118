#include "kvm/bench/cold_memory.h"

#include <cmath>
#include <cstring>

#include "gtest/gtest.h"
#include "kvm/kernels/bfloat16.h"

namespace kvm {
namespace {

TEST(ColdMemoryTest, PiecesLieSideBySideAndComeRound) {
  const ColdMemory memory(1000);
  EXPECT_EQ(memory.byte_size(), 1024);
  EXPECT_EQ(memory.NumPieces(65), 8);
  const char* first = static_cast<const char*>(memory.Piece(0, 65));
  EXPECT_EQ(memory.Piece(1, 65), first + 128);
  EXPECT_EQ(memory.Piece(7, 65), first + 7 * 128);
  EXPECT_EQ(memory.Piece(8, 65), first);
}

TEST(ColdMemoryTest, NumbersAreOrdinaryAsFloat32AndAsBFloat16) {
  const ColdMemory memory(1 << 18);
  for (const float x : memory.floats()) {
    ASSERT_TRUE(std::isnormal(x));
    ASSERT_LT(std::fabs(x), 10);
    BFloat16 halves[2];
    std::memcpy(static_cast<void*>(halves), &x, sizeof(x));
    for (const BFloat16 half : halves) {
      ASSERT_TRUE(std::isnormal(ToFloat(half)));
      ASSERT_LT(std::fabs(ToFloat(half)), 10);
    }
  }
}

}  // namespace
}  // namespace kvm
