#include "testing/allocation_peak.h"

#include <memory>
#include <new>
#include <vector>

#include "gtest/gtest.h"

namespace kvm {
namespace {

constexpr size_t kSize = 1 << 20;

void Hold(size_t blocks) {
  std::vector<std::unique_ptr<volatile char[]>> held;
  for (size_t i = 0; i < blocks; ++i) held.emplace_back(new char[kSize]);
}

TEST(AllocationPeak, IsTheMostAtOneTime) {
  const size_t peak = AllocationPeak([] {
    Hold(1);
    Hold(3);
    Hold(2);
  });
  EXPECT_GE(peak, 3 * kSize);
  EXPECT_LT(peak, 4 * kSize);
  EXPECT_LT(AllocationPeak([] {}), kSize);
}

TEST(AllocationPeak, CountsAlignedMemory) {
  const auto allocate = [] {
    constexpr std::align_val_t kAlignment{64};
    void* volatile memory = ::operator new(kSize, kAlignment);
    ::operator delete(memory, kAlignment);
  };
  EXPECT_GE(AllocationPeak(allocate), kSize);
}

}  // namespace
}  // namespace kvm
