#ifndef KVM_IO_TENSORS_CAST_H_
#define KVM_IO_TENSORS_CAST_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvm/kernels/tensor.h"

namespace kvm {

// IEEE binary16, rounded to nearest, ties to even; what is too large becomes infinite, NaN stays NaN. Exact for numbers
// that came from binary16.
uint16_t ToHalf(float f);

// A copy with elements of `dtype`: kF32, kBF16 or kF16, rounded to nearest. `name` is the tensor's in messages:
// InvalidArgument for a finite number that would become infinite.
absl::StatusOr<Tensor> CastTensor(const TensorView& tensor, DType dtype, absl::string_view name);

}  // namespace kvm

#endif  // KVM_IO_TENSORS_CAST_H_
