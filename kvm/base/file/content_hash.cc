#include "kvm/base/file/content_hash.h"

#include <algorithm>
#include <cstring>

namespace kvm {
namespace {

// Odd, so that multiplying loses nothing: 2^64 over the golden ratio.
constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15u;

uint64_t Mix(uint64_t lane, uint64_t word) {
  const uint64_t product = (lane ^ word) * kMultiplier;
  return product << 29 | product >> 35;
}

void MixBlock(const char* block, uint64_t (&lanes)[4]) {
  for (int i = 0; i < 4; ++i) {
    uint64_t word;
    std::memcpy(&word, block + 8 * i, sizeof(word));
    lanes[i] = Mix(lanes[i], word);
  }
}

}  // namespace

void ContentHash::Add(absl::string_view bytes) {
  if (bytes.empty()) return;
  const size_t filled = length_ % kBlock;
  length_ += bytes.size();
  if (filled > 0) {
    const size_t count = std::min(kBlock - filled, bytes.size());
    std::memcpy(rest_ + filled, bytes.data(), count);
    bytes.remove_prefix(count);
    if (filled + count < kBlock) return;
    MixBlock(rest_, lanes_);
  }
  for (; bytes.size() >= kBlock; bytes.remove_prefix(kBlock)) MixBlock(bytes.data(), lanes_);
  if (!bytes.empty()) std::memcpy(rest_, bytes.data(), bytes.size());
}

uint64_t ContentHash::Value() const {
  uint64_t lanes[4] = {lanes_[0], lanes_[1], lanes_[2], lanes_[3]};
  if (const size_t filled = length_ % kBlock; filled > 0) {
    char padded[kBlock] = {};
    std::memcpy(padded, rest_, filled);
    MixBlock(padded, lanes);
  }
  uint64_t value = length_;
  for (const uint64_t lane : lanes) value = Mix(value, lane);
  value ^= value >> 32;
  value *= kMultiplier;
  return value ^ value >> 29;
}

}  // namespace kvm
