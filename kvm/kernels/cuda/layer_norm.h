#ifndef KVM_KERNELS_CUDA_LAYER_NORM_H_
#define KVM_KERNELS_CUDA_LAYER_NORM_H_

// Layer normalization of rows on the GPU. Each row's bits depend on that row alone.

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "kvm/kernels/matrix_view.h"

namespace kvm::cuda {

// out = (x − mean)/sqrt(var + epsilon) ⊙ weight + bias over all columns, biased variance, queued on `stream`.
// The views and pointers are of device memory. x, out: [n, d]; weight, bias: d floats. `out` may be `x` itself,
// otherwise no overlap. InvalidArgument when the shapes of x and out differ, when rows overlap, and for null addresses.
absl::Status LayerNorm(MatrixView<const float> x, const float* weight, const float* bias, float epsilon,
                       MatrixView<float> out, cudaStream_t stream);

}  // namespace kvm::cuda

#endif  // KVM_KERNELS_CUDA_LAYER_NORM_H_
