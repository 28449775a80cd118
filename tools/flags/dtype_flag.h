#ifndef KVM_TOOLS_FLAGS_DTYPE_FLAG_H_
#define KVM_TOOLS_FLAGS_DTYPE_FLAG_H_

#include <optional>
#include <string>

#include "kvm/kernels/dtype.h"

namespace kvm {

// What --dtype says: nothing for "as-is", otherwise one of "f32", "bf16", "f16" and "int8".
inline std::optional<DType> ParseDTypeFlag(const std::string& value) {
  if (value == "f32") return DType::kF32;
  if (value == "bf16") return DType::kBF16;
  if (value == "f16") return DType::kF16;
  if (value == "int8") return DType::kI8;
  return std::nullopt;
}

}  // namespace kvm

#endif  // KVM_TOOLS_FLAGS_DTYPE_FLAG_H_
