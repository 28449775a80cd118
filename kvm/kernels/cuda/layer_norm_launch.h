#ifndef KVM_KERNELS_CUDA_LAYER_NORM_LAUNCH_H_
#define KVM_KERNELS_CUDA_LAYER_NORM_LAUNCH_H_

// What layer_norm.cc and layer_norm.cu share. Plain types alone: nvcc takes three times as long with Abseil's headers.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace kvm::cuda {

struct LayerNormArguments {
  const float* x;
  int64_t x_stride;
  const float* weight;
  const float* bias;
  float epsilon;
  float* out;
  int64_t out_stride;
  int64_t rows;  // >= 1
  int64_t cols;  // >= 1
};

cudaError_t LaunchLayerNorm(const LayerNormArguments& arguments, cudaStream_t stream);

}  // namespace kvm::cuda

#endif  // KVM_KERNELS_CUDA_LAYER_NORM_LAUNCH_H_
