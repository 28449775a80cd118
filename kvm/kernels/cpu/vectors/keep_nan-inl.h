// NaN through functions that lose it. Included once per instruction set.
//
// Highway's Exp makes 0 of NaN, and Max and Min give either operand: a kernel that goes through them would read broken
// numbers as sound ones.

// clang-format off
#if defined(KVM_KERNELS_CPU_VECTORS_KEEP_NAN_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT
// clang-format on
#ifdef KVM_KERNELS_CPU_VECTORS_KEEP_NAN_INL_H_
#undef KVM_KERNELS_CPU_VECTORS_KEEP_NAN_INL_H_
#else
#define KVM_KERNELS_CPU_VECTORS_KEEP_NAN_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvm {
namespace HWY_NAMESPACE {

// `result`, which was made from x, where x is a number; else x.
template <class Vector>
HWY_INLINE Vector KeepNan(Vector x, Vector result) {
  return hwy::HWY_NAMESPACE::IfThenElse(hwy::HWY_NAMESPACE::Eq(x, x), result, x);
}

// The larger of each pair; `a` where b is NaN. Never NaN unless a is.
template <class Vector>
HWY_INLINE Vector MaxOfNumbers(Vector a, Vector b) {
  return hwy::HWY_NAMESPACE::IfThenElse(hwy::HWY_NAMESPACE::Gt(b, a), b, a);
}

}  // namespace HWY_NAMESPACE
}  // namespace kvm
HWY_AFTER_NAMESPACE();

#endif  // toggled once per instruction set
