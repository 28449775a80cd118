#include "kvm/io/tensors/cast.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/check.h"
#include "kvm/kernels/bfloat16.h"
#include "kvm/kernels/dtype.h"

namespace kvm {
namespace {

// From here on float32 numbers round to an infinite one.
constexpr float kHalfLimit = 65520;
constexpr float kBFloat16Limit = 0x1.ffp127f;

// value·2^(−shift), rounded to nearest, ties to even. 1 <= shift <= 31.
uint32_t RoundedShift(uint32_t value, int shift) {
  const uint32_t half = uint32_t{1} << (shift - 1);
  const uint32_t odd = (value >> shift) & 1u;
  return (value + half - 1 + odd) >> shift;
}

}  // namespace

uint16_t ToHalf(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof(bits));
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    const uint32_t payload = (magnitude >> 13) & 0x3ffu;
    half = 0x7c00u | (payload == 0 ? 0x200u : payload);
  } else if (std::abs(f) >= kHalfLimit) {
    half = 0x7c00u;
  } else if (exponent >= -14) {
    half = RoundedShift(magnitude - ((127 - 15) << 23), 13);
  } else if (exponent >= -25) {  // subnormal: a multiple of 2⁻²⁴
    half = RoundedShift((magnitude & 0x7fffffu) | 0x800000u, -1 - exponent);
  } else {
    half = 0;
  }
  return static_cast<uint16_t>(sign | half);
}

absl::StatusOr<Tensor> CastTensor(const TensorView& tensor, DType dtype, absl::string_view name) {
  Check(dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16, "dtype F32, BF16 or F16");
  Tensor cast(dtype, tensor.shape);
  if (tensor.dtype == dtype) {
    if (cast.byte_size() > 0) std::memcpy(cast.bytes(), tensor.data, static_cast<size_t>(cast.byte_size()));
    return cast;
  }
  const std::vector<float> values = ReadFloats(tensor);
  const float limit = dtype == DType::kF16 ? kHalfLimit : dtype == DType::kBF16 ? kBFloat16Limit : INFINITY;
  for (const float value : values) {
    // Of a float64 that float32 cannot hold nothing but infinity is left here, so it passes as one.
    if (std::abs(value) >= limit && std::isfinite(value)) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": ", value, " does not fit ", Name(dtype)));
    }
  }
  if (dtype == DType::kF32) {
    std::copy(values.begin(), values.end(), cast.floats().begin());
  } else if (dtype == DType::kBF16) {
    std::transform(values.begin(), values.end(), static_cast<BFloat16*>(cast.bytes()), ToBFloat16);
  } else {
    std::transform(values.begin(), values.end(), static_cast<uint16_t*>(cast.bytes()), ToHalf);
  }
  return cast;
}

}  // namespace kvm
