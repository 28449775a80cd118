#ifndef KVM_KERNELS_CUDA_MATMUL_H_
#define KVM_KERNELS_CUDA_MATMUL_H_

// Dense products on the GPU, by cuBLAS, in float32 throughout: TF32 and other shortened arithmetic are off.
//
// The same product of the same shape gives the same bits. Unlike on the CPU, a row alone and the same row inside a
// batch may differ in the last bits: cuBLAS chooses its kernel, and with it the order of sums, by shape.

#include <cublas_v2.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvm/kernels/matrix_view.h"

namespace kvm::cuda {

// cuBLAS on the current GPU. Creating one takes long and device memory: keep it. Thread-compatible.
class Cublas {
 public:
  static absl::StatusOr<Cublas> Create();

  cublasHandle_t get() const { return handle_.get(); }

 private:
  struct Destroy {
    void operator()(cublasHandle_t handle) const { cublasDestroy(handle); }
  };
  explicit Cublas(cublasHandle_t handle) : handle_(handle) {}
  std::unique_ptr<cublasContext, Destroy> handle_;
};

// out[r, o] = Σ_i x[r, i]·w[o, i], queued on `stream`.
// The views are of device memory. x: [n, inputs], w: [outputs, inputs], out: [n, outputs]; inputs >= 1; out must not
// overlap x or w. InvalidArgument, naming the views, for other shapes, rows that overlap, extents past int32, and null
// addresses.
absl::Status MatMul(cublasHandle_t cublas, MatrixView<const float> x, MatrixView<const float> w, MatrixView<float> out,
                    cudaStream_t stream);

}  // namespace kvm::cuda

#endif  // KVM_KERNELS_CUDA_MATMUL_H_
