#ifndef KVM_KERNELS_HALF_H_
#define KVM_KERNELS_HALF_H_

// IEEE binary16: 1 sign, 5 exponent and 10 mantissa bits. Storage only; arithmetic is done in float32.

#include <cstdint>
#include <cstring>

namespace kvm {

// Exact: float32 holds every half. NaN stays NaN, with its payload.
inline float HalfToFloat(uint16_t half) {
  const uint32_t exponent = (half >> 10) & 0x1f;
  const uint32_t mantissa = half & 0x3ff;
  if (exponent == 0) {  // zero and subnormals: mantissa·2⁻²⁴
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return (half & 0x8000) ? -magnitude : magnitude;
  }
  const uint32_t float_exponent = exponent == 0x1f ? 0xff : exponent + (127 - 15);
  const uint32_t bits = (uint32_t{half} & 0x8000) << 16 | float_exponent << 23 | mantissa << 13;
  float f;
  std::memcpy(&f, &bits, sizeof(f));
  return f;
}

}  // namespace kvm

#endif  // KVM_KERNELS_HALF_H_
