#include "kvm/state/block_window.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvm/base/check.h"
#include "kvm/base/status_macros.h"
#include "kvm/kernels/bfloat16.h"
#include "kvm/kernels/check_view.h"
#include "kvm/kernels/key_panels.h"

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

// Writes positions index.. of a block, for all heads: keys [n, num_heads·qk_dim], values [n, num_heads·v_dim].
template <typename T>
void WritePositions(const BlockWindowShape& shape, int64_t index, MatrixView<const float> keys,
                    MatrixView<const float> values, void* block_keys, void* block_values) {
  for (int64_t h = 0; h < shape.num_heads; ++h) {
    const HeadBlock<T> block(shape, h, block_keys, block_values);
    PackKeys(keys.Cols(h * shape.qk_dim, shape.qk_dim), index, shape.dtype, block.keys);
    for (int64_t r = 0; r < values.rows; ++r) {
      for (int64_t c = 0; c < shape.v_dim; ++c) {
        Store(values.row(r)[h * shape.v_dim + c], block.values + (index + r) * shape.v_dim + c);
      }
    }
  }
}

// Reads positions index.. of a block of one head: keys [n, qk_dim], values [n, v_dim].
template <typename T>
void ReadPositions(const BlockWindowShape& shape, int64_t head, int64_t index, const void* block_keys,
                   const void* block_values, MatrixView<float> keys, MatrixView<float> values) {
  const HeadBlock<T> block(shape, head, const_cast<void*>(block_keys), const_cast<void*>(block_values));
  UnpackKeys(block.keys, index, shape.dtype, keys);
  for (int64_t r = 0; r < values.rows; ++r) {
    for (int64_t c = 0; c < shape.v_dim; ++c) {
      values.row(r)[c] = Load(block.values[(index + r) * shape.v_dim + c]);
    }
  }
}

}  // namespace

int64_t NewestBlocksBegin(int64_t position, int64_t block_len, int64_t num_blocks) {
  CheckAtLeast(position, 0, "position");
  CheckAtLeast(block_len, 1, "block_len");
  CheckAtLeast(num_blocks, 0, "num_blocks");
  const int64_t begun = (position + block_len - 1) / block_len;
  return std::max<int64_t>(0, begun - num_blocks) * block_len;
}

BlockWindow::BlockWindow(const BlockWindowShape& shape) : shape_(shape) {
  CheckAtLeast(shape.num_heads, 1, "shape.num_heads");
  CheckAtLeast(shape.qk_dim, 1, "shape.qk_dim");
  CheckAtLeast(shape.v_dim, 1, "shape.v_dim");
  CheckAtLeast(shape.block_len, 0, "shape.block_len");
  Check(shape.dtype == DType::kF32 || shape.dtype == DType::kBF16, "shape.dtype to be F32 or BF16");
}

BlockWindow::Block BlockWindow::NewBlock() const {
  const int64_t element = SizeOf(shape_.dtype);
  Block block;
  block.keys.resize(NumElements(KeysShape()) * element);
  block.values.resize(NumElements(ValuesShape()) * element);
  return block;
}

void BlockWindow::AddBlock() {
  if (!spare_ || spare_.is_shared()) {
    blocks_.emplace_back(std::make_unique<Block>(NewBlock()));
    return;
  }
  Block& block = spare_.Mutable();
  std::fill(block.keys.begin(), block.keys.end(), 0);
  std::fill(block.values.begin(), block.values.end(), 0);
  blocks_.push_back(std::move(spare_));
}

Shape BlockWindow::KeysShape() const {
  const int64_t panels = KeyPanelElements(shape_.block_len, 1) / kKeyPanel;
  return {shape_.num_heads, panels, shape_.qk_dim, kKeyPanel};
}

void BlockWindow::Append(MatrixView<const float> keys, MatrixView<const float> values) {
  CheckView(keys, keys.rows, shape_.num_heads * shape_.qk_dim, "keys");
  CheckView(values, keys.rows, shape_.num_heads * shape_.v_dim, "values");
  if (keys.rows > 0) CheckAtLeast(shape_.block_len, 1, "block_len");
  const auto write = shape_.dtype == DType::kF32 ? WritePositions<float> : WritePositions<BFloat16>;
  for (int64_t r = 0, count; r < keys.rows; r += count, end_ += count) {
    const int64_t index = end_ % shape_.block_len;
    count = std::min(keys.rows - r, shape_.block_len - index);
    if (index == 0) AddBlock();
    Block& block = blocks_.back().Mutable();
    write(shape_, index, keys.Rows(r, count), values.Rows(r, count), block.keys.data(), block.values.data());
  }
}

void BlockWindow::DropBefore(int64_t position) {
  // A block that is not full yet stays: the next position goes there.
  while (!blocks_.empty() && begin_ + shape_.block_len <= std::min(position, end_)) {
    spare_ = std::move(blocks_.front());
    blocks_.erase(blocks_.begin());
    begin_ += shape_.block_len;
  }
}

void BlockWindow::AppendSegments(int64_t head, std::pmr::vector<KeyValueSegment>* segments) const {
  CheckBetween(head, 0, shape_.num_heads - 1, "head");
  const int64_t element = SizeOf(shape_.dtype);
  int64_t first = begin_;
  for (const CopyOnWrite<Block>& block : blocks_) {
    KeyValueSegment segment;
    segment.keys = block->keys.data() + head * KeyPanelElements(shape_.block_len, shape_.qk_dim) * element;
    segment.values = block->values.data() + head * shape_.block_len * shape_.v_dim * element;
    segment.dtype = shape_.dtype;
    segment.count = std::min(shape_.block_len, end_ - first);
    segment.first_position = first;
    segments->push_back(segment);
    first += shape_.block_len;
  }
}

void BlockWindow::Read(int64_t head, int64_t first, int64_t count, MatrixView<float> keys,
                       MatrixView<float> values) const {
  CheckBetween(head, 0, shape_.num_heads - 1, "head");
  CheckAtLeast(first, begin_, "first");
  CheckBetween(count, 0, end_ - first, "count");
  CheckView(keys, keys.rows, shape_.qk_dim, "keys");
  CheckView(values, values.rows, shape_.v_dim, "values");
  CheckAtLeast(keys.rows, count, "keys.rows");
  CheckAtLeast(values.rows, count, "values.rows");
  const auto read = shape_.dtype == DType::kF32 ? ReadPositions<float> : ReadPositions<BFloat16>;
  for (int64_t r = 0, some; r < count; r += some) {
    const int64_t offset = first + r - begin_;
    const int64_t index = offset % shape_.block_len;
    some = std::min(count - r, shape_.block_len - index);
    const Block& block = *blocks_[offset / shape_.block_len];
    read(shape_, head, index, block.keys.data(), block.values.data(), keys.Rows(r, some), values.Rows(r, some));
  }
}

int64_t BlockWindow::ByteSize() const { return static_cast<int64_t>(blocks_.size()) * BlockByteSize(shape_); }

int64_t BlockWindow::BlockByteSize(const BlockWindowShape& shape) {
  return shape.num_heads * (KeyPanelElements(shape.block_len, shape.qk_dim) + shape.block_len * shape.v_dim) *
         SizeOf(shape.dtype);
}

void BlockWindow::Save(const StateWriter& out) const {
  out.Number("begin", begin_);
  out.Number("end", end_);
  int64_t first = begin_;
  for (const CopyOnWrite<Block>& block : blocks_) {
    const StateWriter part = out.Part(absl::StrCat("block.", first / shape_.block_len));
    part.Tensor("keys", shape_.dtype, KeysShape(), block->keys.data());
    part.Tensor("values", shape_.dtype, ValuesShape(), block->values.data());
    first += shape_.block_len;
  }
}

absl::Status BlockWindow::Restore(const StateReader& in, int64_t begin, int64_t end) {
  Check(blocks_.empty() && end_ == 0, "a new window");
  CheckBetween(begin, 0, end, "begin");
  Check(begin == 0 || (shape_.block_len > 0 && begin % shape_.block_len == 0), "begin to be a multiple of block_len");
  ASSIGN_OR_RETURN(begin_, in.Number("begin", begin, begin));
  ASSIGN_OR_RETURN(end_, in.Number("end", end, end));
  // `end` may be a number of a hostile file: the first block that is not there ends this, however many it promises.
  for (int64_t first = begin; first < end; first += shape_.block_len) {
    const StateReader part = in.Part(absl::StrCat("block.", first / shape_.block_len));
    auto block = std::make_unique<Block>(NewBlock());
    RETURN_IF_ERROR(part.Tensor("keys", shape_.dtype, KeysShape(), block->keys.data()));
    RETURN_IF_ERROR(part.Tensor("values", shape_.dtype, ValuesShape(), block->values.data()));
    blocks_.emplace_back(std::move(block));
  }
  return absl::OkStatus();
}

}  // namespace kvm
