#include "testing/fuzz/memory_limit.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

// Of the sanitizers' runtimes; null in builds without.
extern "C" __attribute__((weak)) int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void*,
                                                                                                   size_t),
                                                                               void (*free_hook)(const volatile void*));
extern "C" __attribute__((weak)) size_t __sanitizer_get_allocated_size(const volatile void* memory);

namespace kvm {
namespace {

constexpr int64_t kNone = INT64_MAX;
std::atomic<int64_t> limit{kNone};
std::atomic<int64_t> used{0};

void OnAllocation(const volatile void*, size_t size) {
  if ((used += static_cast<int64_t>(size)) <= limit) return;
  limit = kNone;
  constexpr char kMessage[] = "memory_limit: allocated more than the input's size allows\n";
  // Nothing that allocates may be called here.
  const ssize_t ignored = write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  static_cast<void>(ignored);
  std::abort();
}

void OnFree(const volatile void* memory) { used -= static_cast<int64_t>(__sanitizer_get_allocated_size(memory)); }

}  // namespace

MemoryLimit::MemoryLimit(size_t bytes) {
  static const bool installed = Counts() && __sanitizer_install_malloc_and_free_hooks(OnAllocation, OnFree) != 0;
  if (installed) limit = used + static_cast<int64_t>(bytes);
}

MemoryLimit::~MemoryLimit() { limit = kNone; }

// The runtime of undefined-behaviour sanitizer alone has one of them, and no allocator.
bool MemoryLimit::Counts() {
  return __sanitizer_install_malloc_and_free_hooks != nullptr && __sanitizer_get_allocated_size != nullptr;
}

}  // namespace kvm
