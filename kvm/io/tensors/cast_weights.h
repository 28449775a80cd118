#ifndef KVM_IO_TENSORS_CAST_WEIGHTS_H_
#define KVM_IO_TENSORS_CAST_WEIGHTS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kvm/kernels/dtype.h"
#include "kvm/model/weights/weight_source.h"

namespace kvm {

// All tensors of a source as `dtype` (kF32, kBF16 or kF16). Those that are so already are shown as they are, the others
// are converted here and now. `source` must outlive the result. InvalidArgument as CastTensor.
absl::StatusOr<std::unique_ptr<WeightSource>> CastWeights(const WeightSource& source, DType dtype);

}  // namespace kvm

#endif  // KVM_IO_TENSORS_CAST_WEIGHTS_H_
