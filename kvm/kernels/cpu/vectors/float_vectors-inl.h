// The vectors that kernels compute with, and how numbers get into them. Included once per instruction set.

// clang-format off
#if defined(KVM_KERNELS_CPU_VECTORS_FLOAT_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT
// clang-format on
#ifdef KVM_KERNELS_CPU_VECTORS_FLOAT_VECTORS_INL_H_
#undef KVM_KERNELS_CPU_VECTORS_FLOAT_VECTORS_INL_H_
#else
#define KVM_KERNELS_CPU_VECTORS_FLOAT_VECTORS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kvm/kernels/bfloat16.h"

HWY_BEFORE_NAMESPACE();
namespace kvm {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// As wide as there are.
using FloatTag = hn::ScalableTag<float>;
using FloatVector = hn::Vec<FloatTag>;

// No wider than a panel of keys or outputs, which a vector then never reaches over.
using PanelTag = hn::CappedTag<float, 16>;
using PanelVector = hn::Vec<PanelTag>;

inline int64_t PanelLanes() { return static_cast<int64_t>(hn::Lanes(PanelTag())); }

// A vector of neighbouring numbers as float32; exact whatever they are stored as.
HWY_INLINE PanelVector LoadFloats(PanelTag d, const float* p) { return hn::LoadU(d, p); }

HWY_INLINE PanelVector LoadFloats(PanelTag d, const BFloat16* p) {
  const hn::RebindToUnsigned<PanelTag> d32;
  const hn::Rebind<uint16_t, PanelTag> d16;
  const auto upper_halves = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)));
  return hn::BitCast(d, hn::ShiftLeft<16>(upper_halves));
}

HWY_INLINE PanelVector LoadFloats(PanelTag d, const int8_t* p) {
  const hn::Rebind<int32_t, PanelTag> d32;
  const hn::Rebind<int8_t, PanelTag> d8;
  return hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, p)));
}

}  // namespace HWY_NAMESPACE
}  // namespace kvm
HWY_AFTER_NAMESPACE();

#endif  // toggled once per instruction set
