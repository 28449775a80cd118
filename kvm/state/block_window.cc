#include "kvm/state/block_window.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "kvm/kernels/bfloat16.h"

namespace kvm {
namespace {

void Store(float x, float* to) { *to = x; }
void Store(float x, BFloat16* to) { *to = ToBFloat16(x); }
float Load(float x) { return x; }
float Load(BFloat16 x) { return ToFloat(x); }

// One head's part of a block.
template <typename T>
struct HeadBlock {
  HeadBlock(const BlockWindowShape& shape, int64_t head, void* keys, void* values)
      : keys(static_cast<T*>(keys) + head * KeyPanelElements(shape.block_len, shape.qk_dim)),
        values(static_cast<T*>(values) + head * shape.block_len * shape.v_dim) {}
  T* keys;
  T* values;
};

// Writes one position of all heads: key [num_heads·qk_dim], value [num_heads·v_dim].
template <typename T>
void WritePosition(const BlockWindowShape& shape, int64_t index, const float* key, const float* value, void* keys,
                   void* values) {
  for (int64_t h = 0; h < shape.num_heads; ++h) {
    const HeadBlock<T> block(shape, h, keys, values);
    for (int64_t c = 0; c < shape.qk_dim; ++c) {
      Store(key[h * shape.qk_dim + c], block.keys + KeyPanelOffset(index, c, shape.qk_dim));
    }
    for (int64_t c = 0; c < shape.v_dim; ++c) {
      Store(value[h * shape.v_dim + c], block.values + index * shape.v_dim + c);
    }
  }
}

template <typename T>
void ReadPosition(const BlockWindowShape& shape, int64_t head, int64_t index, const void* keys, const void* values,
                  float* key, float* value) {
  const HeadBlock<T> block(shape, head, const_cast<void*>(keys), const_cast<void*>(values));
  for (int64_t c = 0; c < shape.qk_dim; ++c) key[c] = Load(block.keys[KeyPanelOffset(index, c, shape.qk_dim)]);
  for (int64_t c = 0; c < shape.v_dim; ++c) value[c] = Load(block.values[index * shape.v_dim + c]);
}

}  // namespace

void BlockWindow::Append(MatrixView<const float> keys, MatrixView<const float> values) {
  assert(keys.rows == values.rows && keys.cols == shape_.num_heads * shape_.qk_dim &&
         values.cols == shape_.num_heads * shape_.v_dim);
  const int64_t element = SizeOf(shape_.dtype);
  for (int64_t r = 0; r < keys.rows; ++r, ++end_) {
    const int64_t index = end_ % shape_.block_len;
    if (index == 0) {
      Block block;
      block.keys.resize(shape_.num_heads * KeyPanelElements(shape_.block_len, shape_.qk_dim) * element);
      block.values.resize(shape_.num_heads * shape_.block_len * shape_.v_dim * element);
      blocks_.push_back(std::move(block));
    }
    Block& block = blocks_.back();
    const auto write = shape_.dtype == DType::kF32 ? WritePosition<float> : WritePosition<BFloat16>;
    write(shape_, index, keys.row(r), values.row(r), block.keys.data(), block.values.data());
  }
}

void BlockWindow::DropBefore(int64_t position) {
  // A block that is not full yet stays: the next position goes there.
  while (begin_ + shape_.block_len <= std::min(position, end_)) {
    blocks_.pop_front();
    begin_ += shape_.block_len;
  }
}

void BlockWindow::AppendSegments(int64_t head, std::pmr::vector<KeyValueSegment>* segments) const {
  const int64_t element = SizeOf(shape_.dtype);
  int64_t first = begin_;
  for (const Block& block : blocks_) {
    KeyValueSegment segment;
    segment.keys = block.keys.data() + head * KeyPanelElements(shape_.block_len, shape_.qk_dim) * element;
    segment.values = block.values.data() + head * shape_.block_len * shape_.v_dim * element;
    segment.dtype = shape_.dtype;
    segment.count = std::min(shape_.block_len, end_ - first);
    segment.first_position = first;
    segments->push_back(segment);
    first += shape_.block_len;
  }
}

void BlockWindow::Read(int64_t head, int64_t first, int64_t count, MatrixView<float> keys,
                       MatrixView<float> values) const {
  assert(first >= begin_ && first + count <= end_);
  const auto read = shape_.dtype == DType::kF32 ? ReadPosition<float> : ReadPosition<BFloat16>;
  for (int64_t r = 0; r < count; ++r) {
    const int64_t offset = first + r - begin_;
    const Block& block = blocks_[offset / shape_.block_len];
    read(shape_, head, offset % shape_.block_len, block.keys.data(), block.values.data(), keys.row(r), values.row(r));
  }
}

int64_t BlockWindow::ByteSize() const { return static_cast<int64_t>(blocks_.size()) * BlockByteSize(shape_); }

int64_t BlockWindow::BlockByteSize(const BlockWindowShape& shape) {
  return shape.num_heads * (KeyPanelElements(shape.block_len, shape.qk_dim) + shape.block_len * shape.v_dim) *
         SizeOf(shape.dtype);
}

}  // namespace kvm
