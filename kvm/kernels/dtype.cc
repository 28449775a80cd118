#include "kvm/kernels/dtype.h"

#include <cstdint>
#include <iterator>

#include "kvm/base/check.h"

namespace kvm {
namespace {

struct DTypeInfo {
  DType dtype;
  absl::string_view name;
  int64_t size;
};

// In the order of the enumerators.
constexpr DTypeInfo kInfos[] = {
    {DType::kBool, "BOOL", 1}, {DType::kU8, "U8", 1},   {DType::kI8, "I8", 1},     {DType::kI16, "I16", 2},
    {DType::kU16, "U16", 2},   {DType::kF16, "F16", 2}, {DType::kBF16, "BF16", 2}, {DType::kI32, "I32", 4},
    {DType::kU32, "U32", 4},   {DType::kF32, "F32", 4}, {DType::kF64, "F64", 8},   {DType::kI64, "I64", 8},
    {DType::kU64, "U64", 8},
};

const DTypeInfo& Info(DType dtype, CallSite site) {
  const int64_t index = static_cast<int64_t>(dtype);
  CheckBetween(index, 0, static_cast<int64_t>(std::size(kInfos)) - 1, "dtype", site);
  return kInfos[index];
}

}  // namespace

int64_t SizeOf(DType dtype) { return Info(dtype, CallSite::Here()).size; }

absl::string_view Name(DType dtype) { return Info(dtype, CallSite::Here()).name; }

bool ParseDType(absl::string_view name, DType* dtype) {
  for (const DTypeInfo& info : kInfos) {
    if (info.name == name) {
      *dtype = info.dtype;
      return true;
    }
  }
  return false;
}

}  // namespace kvm
