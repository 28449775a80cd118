#ifndef KVM_KERNELS_SCRATCH_H_
#define KVM_KERNELS_SCRATCH_H_

// Memory that a step works in: matrices are handed out one after the other and taken back all at once. What was taken
// back is handed out again, so that a step that has been done before allocates nothing.
//
//   Scratch::Scope scope(scratch);               // everything taken below is given back when `scope` ends
//   MatrixView<float> q = scratch.Matrix(n, d);  // uninitialized, rows dense, 64-byte aligned start

#include <cstdint>
#include <memory>
#include <vector>

#include "kvm/kernels/matrix_view.h"

namespace kvm {

// Thread-compatible.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  MatrixView<float> Matrix(int64_t rows, int64_t cols);

  // Bytes held, whether in use or not.
  int64_t ByteSize() const;

  class Scope {
   public:
    explicit Scope(Scratch& scratch) : scratch_(scratch), block_(scratch.block_), used_(scratch.used_) {}
    ~Scope() {
      scratch_.block_ = block_;
      scratch_.used_ = used_;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Scratch& scratch_;
    size_t block_;
    int64_t used_;
  };

 private:
  struct Block;
  std::vector<Block> blocks_;  // addresses stay valid while blocks are added
  size_t block_ = 0;           // the block being handed out
  int64_t used_ = 0;           // floats handed out of it
};

}  // namespace kvm

#endif  // KVM_KERNELS_SCRATCH_H_
