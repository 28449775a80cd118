#include "kvm/kernels/scratch.h"

#include <algorithm>

#include "kvm/base/check.h"
#include "kvm/kernels/aligned_buffer.h"

namespace kvm {
namespace {

constexpr int64_t kFloatsPerLine = kCacheLineBytes / sizeof(float);
constexpr int64_t kSmallestBlock = int64_t{1} << 16;  // floats

}  // namespace

struct Scratch::Block {
  AlignedBuffer memory;
  int64_t capacity = 0;  // floats
};

Scratch::Scratch() = default;
Scratch::~Scratch() = default;

MatrixView<float> Scratch::Matrix(int64_t rows, int64_t cols) {
  CheckAtLeast(rows, 0, "rows");
  CheckAtLeast(cols, 0, "cols");
  const int64_t needed = std::max<int64_t>((rows * cols + kFloatsPerLine - 1) / kFloatsPerLine, 1) * kFloatsPerLine;
  if (blocks_.empty() || used_ + needed > blocks_[block_].capacity) {
    if (!blocks_.empty()) ++block_;
    used_ = 0;
    if (block_ == blocks_.size()) blocks_.emplace_back();
    Block& block = blocks_[block_];
    // Nothing has been handed out of this block, so that one too small can make way for a larger one.
    if (block.capacity < needed) {
      const int64_t held = ByteSize() / static_cast<int64_t>(sizeof(float));
      block = Block();
      block.capacity = std::max({needed, held, kSmallestBlock});
      block.memory = AllocateAligned(block.capacity * sizeof(float));
    }
  }
  float* data = static_cast<float*>(blocks_[block_].memory.get()) + used_;
  used_ += needed;
  return MatrixView<float>(data, rows, cols);
}

int64_t Scratch::ByteSize() const {
  int64_t floats = 0;
  for (const Block& block : blocks_) floats += block.capacity;
  return floats * static_cast<int64_t>(sizeof(float));
}

}  // namespace kvm
