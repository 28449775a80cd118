#ifndef KVM_STATE_FINITE_TENSORS_H_
#define KVM_STATE_FINITE_TENSORS_H_

// A state with NaN or infinity in it answers nothing, and whatever reads it later spreads it: such states are neither
// written to files nor taken from them.

#include "absl/status/status.h"
#include "kvm/kernels/tensor.h"
#include "kvm/state/state_fields.h"

namespace kvm {

// OK unless the tensor is of floats, of any size, and one of them is NaN or infinite: InvalidArgument that names the
// tensor, its layer and the first such element. The data may be unaligned.
absl::Status CheckFinite(const StateTensor& tensor);

// Whether a tensor is of integers or has no NaN and no infinity, as fast as memory is read. The data may be unaligned.
bool AllFinite(const TensorView& view);

}  // namespace kvm

#endif  // KVM_STATE_FINITE_TENSORS_H_
