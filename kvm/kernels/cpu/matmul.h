#ifndef KVM_KERNELS_CPU_MATMUL_H_
#define KVM_KERNELS_CPU_MATMUL_H_

// Dense products with a weight matrix that is packed once and read many times.
//
// Each output element is one float32 sum over the inputs in ascending order, whatever the number of rows or threads:
// a row multiplied alone and the same row inside a batch give the same bits.

#include <cstdint>

#include "kvm/kernels/dtype.h"
#include "kvm/kernels/matrix_view.h"
#include "kvm/kernels/tensor.h"
#include "kvm/kernels/thread_pool.h"

namespace kvm {

// A matrix W [outputs, inputs] in panels of kPanel outputs: [outputs/kPanel][inputs][kPanel], zero padded at the end.
class PackedMatrix {
 public:
  static constexpr int64_t kPanel = 16;

  PackedMatrix() = default;
  // `weight` has two dimensions [outputs, inputs] and any dtype that ReadFloats takes. `storage` is kF32 or kBF16:
  // the elements are rounded to it here, and products read that many bytes.
  static PackedMatrix Pack(const TensorView& weight, DType storage);

  int64_t outputs() const { return outputs_; }
  int64_t inputs() const { return inputs_; }
  DType storage() const { return panels_.dtype(); }
  const void* panel(int64_t p) const;  // the first element of panel p
  int64_t byte_size() const { return panels_.byte_size(); }

 private:
  int64_t outputs_ = 0;
  int64_t inputs_ = 0;
  Tensor panels_;
};

// out[r, o] = Σ_i x[r, i]·W[o, i].  x: [n, inputs], out: [n, outputs], n >= 0; out must not overlap x.
void MatMul(MatrixView<const float> x, const PackedMatrix& w, MatrixView<float> out, ThreadPool& pool);

}  // namespace kvm

#endif  // KVM_KERNELS_CPU_MATMUL_H_
