#ifndef KVM_KERNELS_KEY_PANELS_H_
#define KVM_KERNELS_KEY_PANELS_H_

// Keys into panels (key_value.h) and out of them again.

#include <cstdint>

#include "kvm/kernels/dtype.h"
#include "kvm/kernels/matrix_view.h"

namespace kvm {

// Writes rows of keys to panels as keys first, first + 1, ...; all other lanes stay as they are. keys: [n, dim];
// panels: room for first + n keys in whole panels of `dtype`, kF32 or kBF16, to which numbers are rounded.
//
//   Tensor panels(DType::kF32, {KeyPanelElements(n, dim)});  // zeros, in the last panel's padding too
//   PackKeys(keys, /*first=*/0, DType::kF32, panels.bytes());
void PackKeys(MatrixView<const float> keys, int64_t first, DType dtype, void* panels);

// The inverse: reads keys first, first + 1, ... of panels into rows. keys: [n, dim].
void UnpackKeys(const void* panels, int64_t first, DType dtype, MatrixView<float> keys);

}  // namespace kvm

#endif  // KVM_KERNELS_KEY_PANELS_H_
