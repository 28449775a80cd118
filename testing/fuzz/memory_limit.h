#ifndef KVM_TESTING_FUZZ_MEMORY_LIMIT_H_
#define KVM_TESTING_FUZZ_MEMORY_LIMIT_H_

#include <cstddef>

namespace kvm {

// While it lives, the process is aborted as soon as the memory allocated since its construction and not yet freed
// exceeds `bytes`: what a parser uses must be bounded by its input's size, not by the sizes that the input declares.
// Needs a sanitizer that replaces the allocator: --config=fuzz, asan or tsan. One at a time.
class MemoryLimit {
 public:
  explicit MemoryLimit(size_t bytes);
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;
  ~MemoryLimit();

  // Whether this build can count.
  static bool Counts();
};

}  // namespace kvm

#endif  // KVM_TESTING_FUZZ_MEMORY_LIMIT_H_
