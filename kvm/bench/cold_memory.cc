#include "kvm/bench/cold_memory.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <random>

#include "kvm/kernels/bfloat16.h"

namespace kvm {
namespace {

int64_t RoundUp(int64_t bytes) { return (bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes; }

}  // namespace

ColdMemory::ColdMemory(int64_t bytes)
    : byte_size_(RoundUp(std::max<int64_t>(1, bytes))), buffer_(AllocateAligned(byte_size_)) {
  // Two bfloat16 side by side are a float32 close to one of them. A short pattern is enough: only sizes matter.
  constexpr int64_t kPatternBytes = 1 << 16;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  BFloat16 pattern[kPatternBytes / sizeof(BFloat16)];
  for (BFloat16& x : pattern) x = ToBFloat16(normal(random));
  char* bytes_of = static_cast<char*>(buffer_.get());
  for (int64_t begin = 0; begin < byte_size_; begin += kPatternBytes) {
    std::memcpy(bytes_of + begin, pattern, static_cast<size_t>(std::min(kPatternBytes, byte_size_ - begin)));
  }
}

absl::Span<const float> ColdMemory::floats() const {
  return absl::MakeConstSpan(static_cast<const float*>(buffer_.get()), static_cast<size_t>(byte_size_) / sizeof(float));
}

int64_t ColdMemory::NumPieces(int64_t bytes) const { return byte_size_ / RoundUp(bytes); }

const void* ColdMemory::Piece(int64_t index, int64_t bytes) const {
  assert(bytes >= 1 && NumPieces(bytes) >= 1);
  return static_cast<const char*>(buffer_.get()) + index % NumPieces(bytes) * RoundUp(bytes);
}

}  // namespace kvm
