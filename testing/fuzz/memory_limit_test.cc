#include "testing/fuzz/memory_limit.h"

#include <cstdint>
#include <memory>

#include "gtest/gtest.h"

namespace kvm {
namespace {

constexpr size_t kLimit = 1 << 20;

// Allocates and frees blocks of `size` bytes, `live` at a time.
void Allocate(size_t size, int live) {
  for (int round = 0; round < 4; ++round) {
    std::unique_ptr<volatile uint8_t[]> blocks[4];
    for (int i = 0; i < live; ++i) blocks[i].reset(new uint8_t[size]);
  }
}

TEST(MemoryLimitTest, StopsWhoeverHoldsMore) {
  if (!MemoryLimit::Counts()) GTEST_SKIP() << "only sanitizers count";
  const auto exceed = [] {
    const MemoryLimit limit(kLimit);
    Allocate(kLimit / 3, 4);
  };
  EXPECT_DEATH(exceed(), "memory_limit: allocated more");
}

TEST(MemoryLimitTest, FreedMemoryDoesNotCount) {
  const MemoryLimit limit(kLimit);
  Allocate(kLimit / 3, 2);
}

TEST(MemoryLimitTest, EndsWithTheObject) {
  { const MemoryLimit limit(kLimit); }
  Allocate(kLimit, 4);
}

}  // namespace
}  // namespace kvm
