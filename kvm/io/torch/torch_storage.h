#ifndef KVM_IO_TORCH_TORCH_STORAGE_H_
#define KVM_IO_TORCH_TORCH_STORAGE_H_

// What a PyTorch checkpoint's pickle says of its tensors, for torch_file.cc alone.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvm/kernels/tensor.h"

namespace kvm {

// A tensor as a strided view of a storage.
struct StoredTensor {
  std::string name;
  DType dtype = DType::kF32;
  absl::string_view key;       // of the storage: its elements are the entry "data/KEY"
  uint64_t storage_bytes = 0;  // that the entry must have
  int64_t offset = 0;          // elements
  Shape shape;
  std::vector<int64_t> strides;  // elements, one for each extent
  bool negated = false;          // the tensor is minus what is stored; never of bools

  // Row-major without gaps. Strides of extents of 1 mean nothing.
  bool IsContiguous() const;
};

// The tensors of the dict that `pickle` describes, each name once. Each lies within its storage, has nonnegative
// strides, at most 64 extents, and a byte size that fits int64. Errors begin with `source`.
absl::StatusOr<std::vector<StoredTensor>> ReadTensorPickle(absl::string_view pickle, const std::string& source);

// The class of storages of a dtype, such as "FloatStorage"; "" when there is none.
absl::string_view StorageClass(DType dtype);

}  // namespace kvm

#endif  // KVM_IO_TORCH_TORCH_STORAGE_H_
