#include "kvm/kernels/cuda/layer_norm.h"

#include "absl/strings/str_cat.h"
#include "kvm/kernels/cuda/device.h"
#include "kvm/kernels/cuda/layer_norm_launch.h"

namespace kvm::cuda {

absl::Status LayerNorm(MatrixView<const float> x, const float* weight, const float* bias, float epsilon,
                       MatrixView<float> out, cudaStream_t stream) {
  if (x.rows != out.rows || x.cols != out.cols) {
    return absl::InvalidArgumentError(absl::StrCat("layer norm: x is [", x.rows, ", ", x.cols, "] but out is [",
                                                   out.rows, ", ", out.cols, "]; expected the same shape"));
  }
  if (x.rows == 0 || x.cols == 0) return absl::OkStatus();
  if (x.rows < 0 || x.cols < 0 || (x.rows > 1 && (x.stride < x.cols || out.stride < out.cols))) {
    return absl::InvalidArgumentError(absl::StrCat("layer norm: [", x.rows, ", ", x.cols, "] with rows ", x.stride,
                                                   " and ", out.stride,
                                                   " elements apart; expected rows that do not overlap"));
  }
  if (x.data == nullptr || out.data == nullptr || weight == nullptr || bias == nullptr) {
    return absl::InvalidArgumentError(
        "layer norm: x, out, weight or bias is at a null address; expected device memory");
  }
  LayerNormArguments arguments;
  arguments.x = x.data;
  arguments.x_stride = x.stride;
  arguments.weight = weight;
  arguments.bias = bias;
  arguments.epsilon = epsilon;
  arguments.out = out.data;
  arguments.out_stride = out.stride;
  arguments.rows = x.rows;
  arguments.cols = x.cols;
  return ToStatus(LaunchLayerNorm(arguments, stream), "layer norm");
}

}  // namespace kvm::cuda
