#ifndef KVM_KERNELS_BFLOAT16_H_
#define KVM_KERNELS_BFLOAT16_H_

// bfloat16: the upper half of a float32. Storage only; arithmetic is done in float32.

#include <cstdint>
#include <cstring>

namespace kvm {

struct BFloat16 {
  uint16_t bits = 0;
};
static_assert(sizeof(BFloat16) == 2, "BFloat16 is stored as two bytes");

inline float ToFloat(BFloat16 x) {
  const uint32_t bits = uint32_t{x.bits} << 16;
  float f;
  std::memcpy(&f, &bits, sizeof(f));
  return f;
}

// Rounds to nearest, ties to even; NaN stays NaN.
inline BFloat16 ToBFloat16(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof(bits));
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return {static_cast<uint16_t>(bits >> 16)};
}

}  // namespace kvm

#endif  // KVM_KERNELS_BFLOAT16_H_
