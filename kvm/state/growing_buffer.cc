#include "kvm/state/growing_buffer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/base/config.h"
#include "kvm/kernels/aligned_buffer.h"

// Sanitizers do not see what goes wrong in memory that moves.
#if defined(__linux__) && !defined(ABSL_HAVE_ADDRESS_SANITIZER) && !defined(ABSL_HAVE_MEMORY_SANITIZER) && \
    !defined(ABSL_HAVE_THREAD_SANITIZER)
#define KVM_MAPPED_MEMORY_MOVES
#include <sys/mman.h>

#include <atomic>
#endif

namespace kvm {
namespace {

// From here on a system call takes less time than the copy that it saves.
constexpr int64_t kMinMappedBytes = 64 << 10;

#ifdef KVM_MAPPED_MEMORY_MOVES

// Linux gives a process 65,530 mappings unless told otherwise, and files and threads need theirs too.
constexpr int64_t kMaxMappings = 1 << 15;
std::atomic<int64_t> num_mappings{0};

// Zeros, or null.
void* Map(int64_t bytes) {
  if (num_mappings >= kMaxMappings) return nullptr;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  ++num_mappings;
  return memory;
}

// The same pages and more of zeros; or null, with all as it was.
void* Remap(void* memory, int64_t bytes, int64_t new_bytes) {
  void* const moved = mremap(memory, bytes, new_bytes, MREMAP_MAYMOVE);
  return moved == MAP_FAILED ? nullptr : moved;
}

void Unmap(void* memory, int64_t bytes) {
  munmap(memory, bytes);
  --num_mappings;
}

#else

void* Map(int64_t) { return nullptr; }
void* Remap(void*, int64_t, int64_t) { return nullptr; }
void Unmap(void*, int64_t) {}

#endif

}  // namespace

GrowingBuffer::GrowingBuffer(const GrowingBuffer& other) {
  Resize(other.size_);
  if (size_ > 0) std::memcpy(data_, other.data_, size_);
}

GrowingBuffer::~GrowingBuffer() {
  if (is_mapped_) {
    Unmap(data_, capacity_);
  } else {
    AlignedFree()(data_);
  }
}

void GrowingBuffer::Swap(GrowingBuffer& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(capacity_, other.capacity_);
  std::swap(is_mapped_, other.is_mapped_);
}

void GrowingBuffer::Resize(int64_t size) {
  // Half as much again, so that growing row by row moves each row a few times only.
  if (size > capacity_) Grow(std::max(size, capacity_ + capacity_ / 2));
  size_ = size;
}

void GrowingBuffer::Grow(int64_t capacity) {
  void* const moved = is_mapped_ ? Remap(data_, capacity_, capacity) : nullptr;
  if (moved != nullptr) {
    data_ = moved;
    capacity_ = capacity;
    return;
  }
  GrowingBuffer grown;
  grown.data_ = capacity >= kMinMappedBytes ? Map(capacity) : nullptr;
  grown.is_mapped_ = grown.data_ != nullptr;
  if (!grown.is_mapped_) {
    grown.data_ = AllocateAligned(capacity).release();
    std::memset(grown.data_, 0, capacity);
  }
  grown.capacity_ = capacity;
  if (size_ > 0) std::memcpy(grown.data_, data_, size_);
  grown.size_ = size_;
  Swap(grown);
}

}  // namespace kvm
