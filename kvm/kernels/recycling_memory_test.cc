#include "kvm/kernels/recycling_memory.h"

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace kvm {
namespace {

TEST(RecyclingMemoryTest, HandsOutWhatWasGivenBackForEverySizeOfAClass) {
  RecyclingMemory memory;
  for (size_t bytes : {1, 64, 65, 4096, 1 << 20}) {
    void* const first = memory.allocate(bytes, 8);
    std::memset(first, 1, bytes);
    void* const second = memory.allocate(bytes, 8);
    EXPECT_NE(first, second);
    memory.deallocate(first, bytes, 8);
    EXPECT_EQ(memory.allocate(bytes, 64), first) << bytes;
    memory.deallocate(first, bytes, 64);
    memory.deallocate(second, bytes, 8);
  }
}

TEST(RecyclingMemoryTest, AlignsAsAsked) {
  RecyclingMemory memory;
  for (size_t alignment : {1, 8, 64, 4096}) {
    void* const data = memory.allocate(100, alignment);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % alignment, 0u);
    memory.deallocate(data, 100, alignment);
  }
}

TEST(RecyclingMemoryTest, ServesBlocksLargerThanItKeeps) {
  RecyclingMemory memory;
  constexpr size_t kLarge = (1 << 20) + 1;
  void* const data = memory.allocate(kLarge, 64);
  std::memset(data, 1, kLarge);
  memory.deallocate(data, kLarge, 64);
}

TEST(RecyclingMemoryTest, ThreadsGetBlocksOfTheirOwn) {
  RecyclingMemory memory;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&memory, t] {
      for (int i = 0; i < 1000; ++i) {
        std::pmr::vector<int> numbers(100, t, &memory);
        for (const int number : numbers) ASSERT_EQ(number, t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace kvm
