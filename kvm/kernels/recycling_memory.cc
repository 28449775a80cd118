#include "kvm/kernels/recycling_memory.h"

#include <new>

namespace kvm {
namespace {

void* NewBlock(size_t bytes, size_t alignment) { return ::operator new(bytes, std::align_val_t(alignment)); }
void DeleteBlock(void* data, size_t alignment) { ::operator delete(data, std::align_val_t(alignment)); }

}  // namespace

RecyclingMemory::~RecyclingMemory() {
  for (Free* first : free_) {
    while (first != nullptr) {
      Free* const next = first->next;
      DeleteBlock(first, kSmallest);
      first = next;
    }
  }
}

size_t RecyclingMemory::SizeIndex(size_t bytes, size_t alignment) {
  if (alignment > kSmallest) return kNumSizes;
  size_t i = 0;
  while (i < kNumSizes && bytes > kSmallest << i) ++i;
  return i;
}

void* RecyclingMemory::do_allocate(size_t bytes, size_t alignment) {
  const size_t i = SizeIndex(bytes, alignment);
  if (i == kNumSizes) return NewBlock(bytes, alignment);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (Free* const block = free_[i]; block != nullptr) {
      free_[i] = block->next;
      return block;
    }
  }
  return NewBlock(kSmallest << i, kSmallest);
}

void RecyclingMemory::do_deallocate(void* data, size_t bytes, size_t alignment) {
  const size_t i = SizeIndex(bytes, alignment);
  if (i == kNumSizes) return DeleteBlock(data, alignment);
  std::lock_guard<std::mutex> lock(mutex_);
  free_[i] = new (data) Free{free_[i]};
}

}  // namespace kvm
