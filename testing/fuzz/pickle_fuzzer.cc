// The pickle of a PyTorch checkpoint: the tensors that are read lie within their storages.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"
#include "kvm/io/torch/torch_storage.h"
#include "kvm/kernels/tensor.h"
#include "testing/fuzz/memory_limit.h"

namespace {

// Whether the last element that the strides reach lies in the storage; in 128 bits, where nothing overflows.
bool LiesWithin(const kvm::StoredTensor& tensor) {
  __int128 last = tensor.offset;
  for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
    if (tensor.shape[axis] == 0) return true;
    last += __int128{tensor.shape[axis] - 1} * tensor.strides[axis];
  }
  return tensor.offset >= 0 && (last + 1) * kvm::SizeOf(tensor.dtype) <= tensor.storage_bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  // The most for its size is a short name of a tensor that was kept, with 64 extents and as many strides.
  const kvm::MemoryLimit limit((size_t{64} << 10) + 300 * size);
  const absl::StatusOr<std::vector<kvm::StoredTensor>> tensors = kvm::ReadTensorPickle(bytes, "data.pkl");
  if (!tensors.ok()) return 0;
  for (const kvm::StoredTensor& tensor : *tensors) {
    CHECK_EQ(tensor.shape.size(), tensor.strides.size());
    CHECK(LiesWithin(tensor)) << tensor.name;
  }
  return 0;
}
