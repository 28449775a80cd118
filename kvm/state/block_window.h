#ifndef KVM_STATE_BLOCK_WINDOW_H_
#define KVM_STATE_BLOCK_WINDOW_H_

// Uncompressed keys and values of the most recent positions, in blocks aligned to multiples of block_len.
// KVM keeps the last n chunks of it, sliding-window attention the blocks its window reaches, full attention all.

#include <cstdint>
#include <deque>
#include <memory_resource>
#include <vector>

#include "kvm/kernels/dtype.h"
#include "kvm/kernels/key_value.h"
#include "kvm/kernels/matrix_view.h"
#include "kvm/state/aligned_vector.h"

namespace kvm {

struct BlockWindowShape {
  int64_t num_heads = 0;  // key/value heads
  int64_t qk_dim = 0;
  int64_t v_dim = 0;
  int64_t block_len = 0;      // positions in a block
  DType dtype = DType::kF32;  // kF32 or kBF16
};

// Copies are deep (Fork). Thread-compatible.
class BlockWindow {
 public:
  explicit BlockWindow(const BlockWindowShape& shape) : shape_(shape) {}

  // Positions held: begin() <= p < end(). begin() is a multiple of block_len.
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }

  // Adds positions end().. : keys [n, num_heads·qk_dim], values [n, num_heads·v_dim], rounded to the dtype.
  void Append(MatrixView<const float> keys, MatrixView<const float> values);

  // Gives up all full blocks that lie wholly before `position`.
  void DropBefore(int64_t position);

  // One segment per block of `head`, oldest first, with their positions. Valid until the next Append or DropBefore.
  void AppendSegments(int64_t head, std::pmr::vector<KeyValueSegment>* segments) const;

  // Copies `count` positions from `first` of one head as float32 rows: keys [count, qk_dim], values [count, v_dim].
  void Read(int64_t head, int64_t first, int64_t count, MatrixView<float> keys, MatrixView<float> values) const;

  // Bytes of the blocks held; a block counts in full from its first position on.
  int64_t ByteSize() const;
  static int64_t BlockByteSize(const BlockWindowShape& shape);

 private:
  // keys: per head panels of block_len keys; values: per head [block_len, v_dim].
  struct Block {
    AlignedVector<unsigned char> keys;
    AlignedVector<unsigned char> values;
  };

  BlockWindowShape shape_;
  int64_t begin_ = 0;
  int64_t end_ = 0;
  std::deque<Block> blocks_;
};

}  // namespace kvm

#endif  // KVM_STATE_BLOCK_WINDOW_H_
