#ifndef KVM_BENCH_COLD_MEMORY_H_
#define KVM_BENCH_COLD_MEMORY_H_

// Memory so large that nothing of it is in a cache by the time it is read again, for kernels whose weights or rows come
// from main memory in real use.

#include <cstdint>

#include "absl/types/span.h"
#include "kvm/kernels/aligned_buffer.h"

namespace kvm {

// Holds numbers of ordinary size whatever they are read as: float32, bfloat16 or int8.
class ColdMemory {
 public:
  // Rounded up to a whole cache line, of which there is at least one.
  explicit ColdMemory(int64_t bytes);

  int64_t byte_size() const { return byte_size_; }
  absl::Span<const float> floats() const;

  // How many pieces of that many bytes (>= 1) there are side by side, each beginning on a cache line.
  int64_t NumPieces(int64_t bytes) const;

  // Piece `index`, counted round and round; there is at least one.
  const void* Piece(int64_t index, int64_t bytes) const;

 private:
  int64_t byte_size_;
  AlignedBuffer buffer_;
};

}  // namespace kvm

#endif  // KVM_BENCH_COLD_MEMORY_H_
