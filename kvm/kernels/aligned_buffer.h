#ifndef KVM_KERNELS_ALIGNED_BUFFER_H_
#define KVM_KERNELS_ALIGNED_BUFFER_H_

// Uninitialized memory that starts on a cache line and is freed by its owner.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace kvm {

inline constexpr int64_t kCacheLineBytes = 64;

struct AlignedFree {
  void operator()(void* p) const { ::operator delete (p, std::align_val_t{kCacheLineBytes}); }
};

// Moves cheaply; null when default constructed or moved from.
using AlignedBuffer = std::unique_ptr<void, AlignedFree>;

inline AlignedBuffer AllocateAligned(int64_t bytes) {
  return AlignedBuffer(::operator new (static_cast<size_t>(bytes), std::align_val_t{kCacheLineBytes}));
}

}  // namespace kvm

#endif  // KVM_KERNELS_ALIGNED_BUFFER_H_
