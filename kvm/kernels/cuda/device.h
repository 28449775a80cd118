#ifndef KVM_KERNELS_CUDA_DEVICE_H_
#define KVM_KERNELS_CUDA_DEVICE_H_

// The current GPU's memory and work queues as objects that clean up after themselves, and CUDA's errors as Status.
//
//   ASSIGN_OR_RETURN(Stream stream, Stream::Create());
//   ASSIGN_OR_RETURN(DeviceBuffer x, DeviceBuffer::CopyOf(host_x, stream.get()));

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kvm::cuda {

// OK for cudaSuccess. Otherwise `action`, a colon and CUDA's name and text of the error: ResourceExhausted when memory
// ran out, FailedPrecondition without a GPU or a driver that fits, InvalidArgument for a refused value, else Internal.
absl::Status ToStatus(cudaError_t error, absl::string_view action);

// OK when there is a GPU to use; FailedPrecondition saying why not.
absl::Status RequireDevice();

// A queue of work on the GPU. Thread-compatible.
class Stream {
 public:
  static absl::StatusOr<Stream> Create();

  cudaStream_t get() const { return stream_.get(); }
  // Waits for all work queued so far and returns its first error.
  absl::Status Synchronize() const;

 private:
  struct Destroy {
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  };
  explicit Stream(cudaStream_t stream) : stream_(stream) {}
  std::unique_ptr<CUstream_st, Destroy> stream_;
};

// Memory on the GPU, aligned to 256 bytes. Must outlive the work queued on it. Thread-compatible.
class DeviceBuffer {
 public:
  // Uninitialized. InvalidArgument for a negative size; zero bytes need no GPU and have a null address.
  static absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes);
  // A copy of `values`, made when `stream` gets there; `values` must live until then.
  static absl::StatusOr<DeviceBuffer> CopyOf(absl::Span<const float> values, cudaStream_t stream);

  // Copies the first out.size() floats to the host and waits until they are there.
  // InvalidArgument when the buffer is shorter.
  absl::Status Read(absl::Span<float> out, cudaStream_t stream) const;

  int64_t byte_size() const { return byte_size_; }
  float* floats() const { return static_cast<float*>(memory_.get()); }

 private:
  struct Free {
    void operator()(void* memory) const { cudaFree(memory); }
  };
  DeviceBuffer(void* memory, int64_t byte_size) : memory_(memory), byte_size_(byte_size) {}
  std::unique_ptr<void, Free> memory_;
  int64_t byte_size_;
};

}  // namespace kvm::cuda

#endif  // KVM_KERNELS_CUDA_DEVICE_H_
