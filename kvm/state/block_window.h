#ifndef KVM_STATE_BLOCK_WINDOW_H_
#define KVM_STATE_BLOCK_WINDOW_H_

// Uncompressed keys and values of the most recent positions, in blocks aligned to multiples of block_len.
// KVM keeps the last n chunks of it, sliding-window attention the blocks its window reaches, full attention all.

#include <cstdint>
#include <memory_resource>
#include <vector>

#include "absl/status/status.h"
#include "kvm/kernels/dtype.h"
#include "kvm/kernels/key_value.h"
#include "kvm/kernels/matrix_view.h"
#include "kvm/state/aligned_vector.h"
#include "kvm/state/copy_on_write.h"
#include "kvm/state/state_fields.h"

namespace kvm {

// Positions in a block of the cache of full or sliding-window attention.
inline constexpr int64_t kAttentionBlock = 256;

struct BlockWindowShape {
  int64_t num_heads = 0;  // key/value heads, >= 1 as are the next two
  int64_t qk_dim = 0;
  int64_t v_dim = 0;
  int64_t block_len = 0;      // positions in a block; 0 for a window that stays empty
  DType dtype = DType::kF32;  // kF32 or kBF16
};

// Where the newest `num_blocks` blocks begin, the last of them possibly in part, after `position` tokens.
int64_t NewestBlocksBegin(int64_t position, int64_t block_len, int64_t num_blocks);

// Copies share blocks until one side writes to them: only the newest can be. Thread-compatible, as plain values are.
class BlockWindow {
 public:
  explicit BlockWindow(const BlockWindowShape& shape);

  // Positions held: begin() <= p < end(). begin() is a multiple of block_len.
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }

  // Adds positions end().. : keys [n, num_heads·qk_dim], values [n, num_heads·v_dim], rounded to the dtype.
  void Append(MatrixView<const float> keys, MatrixView<const float> values);

  // Gives up all full blocks that lie wholly before `position`.
  void DropBefore(int64_t position);

  // One segment per block of `head`, oldest first, with their positions. Valid until the next Append or DropBefore.
  void AppendSegments(int64_t head, std::pmr::vector<KeyValueSegment>* segments) const;

  // Copies `count` positions from `first` of one head as float32 rows: keys [>= count, qk_dim], values [>= count,
  // v_dim], of which further rows stay as they are.
  void Read(int64_t head, int64_t first, int64_t count, MatrixView<float> keys, MatrixView<float> values) const;

  // Bytes of the blocks held; a block counts in full from its first position on.
  int64_t ByteSize() const;
  static int64_t BlockByteSize(const BlockWindowShape& shape);

  // "begin", "end", and of every block "block.I.keys" [num_heads, panels, qk_dim, kKeyPanel] and "block.I.values"
  // [num_heads, block_len, v_dim], I being the block's first position / block_len.
  void Save(const StateWriter& out) const;
  // Takes over what Save() wrote of a window with exactly these positions; `begin` is a multiple of block_len. This one
  // is new. InvalidArgument naming the field that is not as it must be.
  absl::Status Restore(const StateReader& in, int64_t begin, int64_t end);

 private:
  // keys: per head panels of block_len keys; values: per head [block_len, v_dim].
  struct Block {
    AlignedVector<unsigned char> keys;
    AlignedVector<unsigned char> values;
  };

  // Of zeros.
  Block NewBlock() const;
  // Behind the present blocks: the one that was given up last, unless another window has it too, or a new one.
  void AddBlock();
  Shape KeysShape() const;
  Shape ValuesShape() const { return {shape_.num_heads, shape_.block_len, shape_.v_dim}; }

  BlockWindowShape shape_;
  int64_t begin_ = 0;
  int64_t end_ = 0;
  std::vector<CopyOnWrite<Block>> blocks_;
  CopyOnWrite<Block> spare_;  // given up: its memory is for the next one
};

}  // namespace kvm

#endif  // KVM_STATE_BLOCK_WINDOW_H_
