#include "kvm/kernels/cuda/device.h"

#include "absl/strings/str_cat.h"
#include "kvm/base/status_macros.h"

namespace kvm::cuda {
namespace {

absl::StatusCode CodeOf(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::StatusCode::kResourceExhausted;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorInitializationError:
      return absl::StatusCode::kFailedPrecondition;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
      return absl::StatusCode::kInvalidArgument;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status ToStatus(cudaError_t error, absl::string_view action) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::Status(CodeOf(error),
                      absl::StrCat(action, ": ", cudaGetErrorName(error), ", ", cudaGetErrorString(error)));
}

absl::Status RequireDevice() {
  int count = 0;
  RETURN_IF_ERROR(ToStatus(cudaGetDeviceCount(&count), "looking for a GPU"));
  if (count == 0) return absl::FailedPreconditionError("looking for a GPU: there is none");
  return absl::OkStatus();
}

absl::StatusOr<Stream> Stream::Create() {
  cudaStream_t stream = nullptr;
  RETURN_IF_ERROR(ToStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream"));
  return Stream(stream);
}

absl::Status Stream::Synchronize() const {
  return ToStatus(cudaStreamSynchronize(stream_.get()), "waiting for a stream");
}

absl::StatusOr<DeviceBuffer> DeviceBuffer::Allocate(int64_t bytes) {
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("a buffer cannot have ", bytes, " bytes"));
  void* memory = nullptr;
  if (bytes > 0) {
    RETURN_IF_ERROR(ToStatus(cudaMalloc(&memory, static_cast<size_t>(bytes)),
                             absl::StrCat("allocating ", bytes, " bytes on the GPU")));
  }
  return DeviceBuffer(memory, bytes);
}

absl::StatusOr<DeviceBuffer> DeviceBuffer::CopyOf(absl::Span<const float> values, cudaStream_t stream) {
  const size_t bytes = values.size() * sizeof(float);
  ASSIGN_OR_RETURN(DeviceBuffer buffer, Allocate(static_cast<int64_t>(bytes)));
  if (bytes > 0) {
    RETURN_IF_ERROR(ToStatus(cudaMemcpyAsync(buffer.floats(), values.data(), bytes, cudaMemcpyHostToDevice, stream),
                             "copying to the GPU"));
  }
  return buffer;
}

absl::Status DeviceBuffer::Read(absl::Span<float> out, cudaStream_t stream) const {
  const size_t bytes = out.size() * sizeof(float);
  if (bytes > static_cast<size_t>(byte_size_)) {
    return absl::InvalidArgumentError(absl::StrCat("reading ", bytes, " bytes of a buffer of ", byte_size_));
  }
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(
      ToStatus(cudaMemcpyAsync(out.data(), floats(), bytes, cudaMemcpyDeviceToHost, stream), "copying from the GPU"));
  return ToStatus(cudaStreamSynchronize(stream), "copying from the GPU");
}

}  // namespace kvm::cuda
