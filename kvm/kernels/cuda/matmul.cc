#include "kvm/kernels/cuda/matmul.h"

#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kvm/base/status_macros.h"

namespace kvm::cuda {
namespace {

absl::Status ToStatus(cublasStatus_t status, absl::string_view action) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const absl::StatusCode code = status == CUBLAS_STATUS_ALLOC_FAILED      ? absl::StatusCode::kResourceExhausted
                                : status == CUBLAS_STATUS_NOT_INITIALIZED ? absl::StatusCode::kFailedPrecondition
                                                                          : absl::StatusCode::kInternal;
  return absl::Status(code, absl::StrCat(action, ": ", cublasGetStatusString(status)));
}

absl::Status CheckView(absl::string_view name, MatrixView<const float> view) {
  constexpr int64_t kMax = std::numeric_limits<int>::max();
  if (view.rows < 0 || view.cols < 0 || view.rows > kMax || view.stride > kMax || view.stride < view.cols) {
    return absl::InvalidArgumentError(
        absl::StrCat("matmul: ", name, " has ", view.rows, " rows of ", view.cols, " columns, ", view.stride,
                     " elements apart; expected extents up to ", kMax, " and rows that do not overlap"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Cublas> Cublas::Create() {
  cublasHandle_t handle = nullptr;
  RETURN_IF_ERROR(ToStatus(cublasCreate(&handle), "starting cuBLAS"));
  return Cublas(handle);
}

absl::Status MatMul(cublasHandle_t cublas, MatrixView<const float> x, MatrixView<const float> w, MatrixView<float> out,
                    cudaStream_t stream) {
  RETURN_IF_ERROR(CheckView("x", x));
  RETURN_IF_ERROR(CheckView("w", w));
  RETURN_IF_ERROR(CheckView("out", out));
  if (x.cols < 1 || x.cols != w.cols || out.rows != x.rows || out.cols != w.rows) {
    return absl::InvalidArgumentError(absl::StrCat("matmul: x [", x.rows, ", ", x.cols, "] times w [", w.rows, ", ",
                                                   w.cols, "] does not give out [", out.rows, ", ", out.cols, "]"));
  }
  if (out.rows == 0 || out.cols == 0) return absl::OkStatus();
  if (x.data == nullptr || w.data == nullptr || out.data == nullptr) {
    return absl::InvalidArgumentError("matmul: x, w or out is at a null address; expected device memory");
  }

  // cuBLAS counts columns first: to it, row-major x, w and out are their transposes, so it computes outᵀ = w·xᵀ.
  const float one = 1;
  const float zero = 0;
  RETURN_IF_ERROR(ToStatus(cublasSetStream(cublas, stream), "matmul: setting the stream"));
  return ToStatus(cublasGemmEx(cublas, CUBLAS_OP_T, CUBLAS_OP_N, static_cast<int>(out.cols), static_cast<int>(out.rows),
                               static_cast<int>(x.cols), &one, w.data, CUDA_R_32F, static_cast<int>(w.stride), x.data,
                               CUDA_R_32F, static_cast<int>(x.stride), &zero, out.data, CUDA_R_32F,
                               static_cast<int>(out.stride), CUBLAS_COMPUTE_32F_PEDANTIC, CUBLAS_GEMM_DEFAULT),
                  "matmul");
}

}  // namespace kvm::cuda
