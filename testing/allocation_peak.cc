#include "testing/allocation_peak.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<size_t> used{0};
std::atomic<size_t> most{0};

void* Count(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  const size_t now = used += malloc_usable_size(memory);
  size_t before = most;
  while (now > before && !most.compare_exchange_weak(before, now)) {
  }
  return memory;
}

void Free(void* memory) noexcept {
  used -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

// The other forms call these; sanitizers have their own for arrays.
void* operator new(size_t size) { return Count(std::malloc(size == 0 ? 1 : size)); }
void* operator new(size_t size, std::align_val_t alignment) {
  void* memory = nullptr;
  return Count(posix_memalign(&memory, static_cast<size_t>(alignment), size) == 0 ? memory : nullptr);
}
void* operator new[](size_t size) { return operator new(size); }
void* operator new[](size_t size, std::align_val_t alignment) { return operator new(size, alignment); }
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete[](void* memory, size_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { Free(memory); }

namespace kvm {

size_t AllocationPeak(absl::FunctionRef<void()> run) {
  const size_t before = used;
  most = before;
  run();
  return most - before;
}

}  // namespace kvm
