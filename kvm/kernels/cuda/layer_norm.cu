#include <cuda_runtime.h>

#include <algorithm>

#include "kvm/kernels/cuda/layer_norm_launch.h"

namespace kvm::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int64_t kMaxBlocks = 1 << 20;

// The sum over the warp's lanes, in every lane.
__device__ float WarpSum(float value) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

// The sum over the block's threads, in every thread, in an order that depends on nothing but kThreads.
// `warp_sums` is shared memory of kWarps floats.
__device__ float BlockSum(float value, float* warp_sums) {
  value = WarpSum(value);
  __syncthreads();  // an earlier call's sums have been read
  if (threadIdx.x % kWarp == 0) warp_sums[threadIdx.x / kWarp] = value;
  __syncthreads();
  float sum = 0;
  for (int warp = 0; warp < kWarps; ++warp) sum += warp_sums[warp];
  return sum;
}

// A block takes a row at a time; thread t sums the columns t, t + kThreads, ... in that order.
__global__ void LayerNormKernel(LayerNormArguments a) {
  __shared__ float warp_sums[kWarps];
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const float* x = a.x + row * a.x_stride;
    float* out = a.out + row * a.out_stride;

    float sum = 0;
    for (int64_t c = threadIdx.x; c < a.cols; c += kThreads) sum += x[c];
    const float mean = BlockSum(sum, warp_sums) / static_cast<float>(a.cols);

    // Around the mean: the difference of two large sums would lose what small variances have.
    float squares = 0;
    for (int64_t c = threadIdx.x; c < a.cols; c += kThreads) squares += (x[c] - mean) * (x[c] - mean);
    const float variance = BlockSum(squares, warp_sums) / static_cast<float>(a.cols);

    const float scale = 1.0f / sqrtf(variance + a.epsilon);
    for (int64_t c = threadIdx.x; c < a.cols; c += kThreads) out[c] = (x[c] - mean) * scale * a.weight[c] + a.bias[c];
  }
}

}  // namespace

cudaError_t LaunchLayerNorm(const LayerNormArguments& arguments, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(std::min(arguments.rows, kMaxBlocks));
  LayerNormKernel<<<blocks, kThreads, 0, stream>>>(arguments);
  return cudaGetLastError();
}

}  // namespace kvm::cuda
