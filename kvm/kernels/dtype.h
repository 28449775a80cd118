#ifndef KVM_KERNELS_DTYPE_H_
#define KVM_KERNELS_DTYPE_H_

// Element types of tensors, named as safetensors names them.

#include <cstdint>

#include "absl/strings/string_view.h"
#include "kvm/base/standard.h"

namespace kvm {

enum class DType : uint8_t { kBool, kU8, kI8, kI16, kU16, kF16, kBF16, kI32, kU32, kF32, kF64, kI64, kU64 };

// Bytes of one element.
int64_t SizeOf(DType dtype);

// "F32", "BF16", ...
absl::string_view Name(DType dtype);

// The inverse of Name(); false when `name` is none of them.
bool ParseDType(absl::string_view name, DType* dtype);

}  // namespace kvm

#endif  // KVM_KERNELS_DTYPE_H_
