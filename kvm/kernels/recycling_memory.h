#ifndef KVM_KERNELS_RECYCLING_MEMORY_H_
#define KVM_KERNELS_RECYCLING_MEMORY_H_

#include <array>
#include <cstddef>
#include <memory_resource>
#include <mutex>

namespace kvm {

// Memory that keeps what is given back for the next who asks for as much: once warm, small lists cost no allocation.
// Blocks are powers of two from 64 bytes to 1 MiB; what is larger is not kept. Thread-safe. std::bad_alloc leaves it as
// good as it was, which std::pmr::synchronized_pool_resource of libstdc++ 12 cannot say: it crashes.
class RecyclingMemory : public std::pmr::memory_resource {
 public:
  RecyclingMemory() = default;
  ~RecyclingMemory() override;

 private:
  static constexpr size_t kSmallest = 64;
  static constexpr size_t kNumSizes = 15;  // up to 64 bytes · 2^14 = 1 MiB

  // A block that nobody uses.
  struct Free {
    Free* next;
  };

  // The smallest i with bytes <= kSmallest·2^i; kNumSizes where blocks are not kept.
  static size_t SizeIndex(size_t bytes, size_t alignment);

  void* do_allocate(size_t bytes, size_t alignment) override;
  void do_deallocate(void* data, size_t bytes, size_t alignment) override;
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  std::mutex mutex_;
  std::array<Free*, kNumSizes> free_ = {};
};

}  // namespace kvm

#endif  // KVM_KERNELS_RECYCLING_MEMORY_H_
