#include "kvm/bench/resident_memory.h"

#include <vector>

#include "gtest/gtest.h"

namespace kvm {
namespace {

TEST(ResidentMemoryTest, GrowsWithMemoryThatIsWritten) {
  const int64_t before = ResidentMemory();
  if (before == 0) GTEST_SKIP() << "this system does not tell";
  constexpr int64_t kBytes = 64 << 20;
  const std::vector<char> written(kBytes, 'x');
  EXPECT_GT(ResidentMemory() - before, kBytes / 2);
  EXPECT_EQ(written.back(), 'x');
}

// In pieces that the allocator keeps for later.
TEST(ResidentMemoryTest, ForgetsWhatWasFreed) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer keeps what was freed";
#endif
  const int64_t before = ResidentMemory();
  if (before == 0) GTEST_SKIP() << "this system does not tell";
  {
    std::vector<std::vector<char>> pieces(1000);
    for (std::vector<char>& piece : pieces) piece.assign(64 << 10, 'x');
    EXPECT_GT(ResidentMemory() - before, 32 << 20);
  }
  EXPECT_LT(ResidentMemory() - before, 8 << 20);
}

}  // namespace
}  // namespace kvm
