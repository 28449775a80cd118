#ifndef KVM_KERNELS_CPU_MATMUL_H_
#define KVM_KERNELS_CPU_MATMUL_H_

// Dense products with a weight matrix that is packed once and read many times.
//
// Each output element is one float32 sum over the inputs in ascending order, whatever the number of rows or threads:
// a row multiplied alone and the same row inside a batch give the same bits. Weights are read as the float32 numbers
// that they stand for, so that int8 panels give the very bits of a float32 matrix of the same weights.

#include <cstdint>

#include "kvm/kernels/dtype.h"
#include "kvm/kernels/matrix_view.h"
#include "kvm/kernels/panels_view.h"
#include "kvm/kernels/tensor.h"
#include "kvm/kernels/thread_pool.h"

namespace kvm {

// A matrix W [outputs, inputs] in panels of kPanel outputs (panels_view.h), zero padded at the end.
class PackedMatrix {
 public:
  static constexpr int64_t kPanel = kPanelOutputs;

  PackedMatrix() = default;
  // `weight` has two dimensions [outputs, inputs] and any dtype that ReadFloats takes. `storage` is kF32, kBF16 or
  // kI8 (int8_panels.h; elements must be finite): the elements are rounded to it here, and products read that many
  // bytes.
  static PackedMatrix Pack(const TensorView& weight, DType storage);
  // Panels that lie elsewhere, as in a mapped file, and outlive this object. Nothing is copied.
  static PackedMatrix Borrow(const PanelsView& panels);

  int64_t outputs() const { return view_.outputs; }
  int64_t inputs() const { return view_.inputs; }
  DType storage() const { return view_.storage; }
  const void* panel(int64_t p) const;  // the first element of panel p
  int64_t byte_size() const { return view_.byte_size(); }
  const PanelsView& view() const { return view_; }

 private:
  PanelsView view_;
  Tensor owned_;  // what view_ shows unless it is borrowed; moving a tensor leaves its bytes in place
};

// out[r, o] = Σ_i x[r, i]·W[o, i].  x: [n, inputs], out: [n, outputs], n >= 0; out must not overlap x.
void MatMul(MatrixView<const float> x, const PackedMatrix& w, MatrixView<float> out, ThreadPool& pool);

}  // namespace kvm

#endif  // KVM_KERNELS_CPU_MATMUL_H_
