#ifndef KVM_STATE_ALIGNED_VECTOR_H_
#define KVM_STATE_ALIGNED_VECTOR_H_

// std::vector whose elements start on a cache line, so that no vector load of a row or panel straddles two lines.

#include <cstddef>
#include <new>
#include <vector>

#include "kvm/kernels/aligned_buffer.h"

namespace kvm {

template <typename T>
struct CacheLineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kAlignment{kCacheLineBytes};

  CacheLineAllocator() = default;
  template <typename U>
  CacheLineAllocator(const CacheLineAllocator<U>&) {}  // NOLINT: allocators convert implicitly

  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kAlignment)); }
  void deallocate(T* p, size_t) { ::operator delete(p, kAlignment); }

  friend bool operator==(CacheLineAllocator, CacheLineAllocator) { return true; }
  friend bool operator!=(CacheLineAllocator, CacheLineAllocator) { return false; }
};

template <typename T>
using AlignedVector = std::vector<T, CacheLineAllocator<T>>;

}  // namespace kvm

#endif  // KVM_STATE_ALIGNED_VECTOR_H_
