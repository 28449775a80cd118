// σ and relatives on whole vectors. Included once per instruction set.

// clang-format off
#if defined(KVM_KERNELS_CPU_VECTORS_SIGMOID_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT
// clang-format on
#ifdef KVM_KERNELS_CPU_VECTORS_SIGMOID_INL_H_
#undef KVM_KERNELS_CPU_VECTORS_SIGMOID_INL_H_
#else
#define KVM_KERNELS_CPU_VECTORS_SIGMOID_INL_H_
#endif

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kvm/kernels/cpu/vectors/float_vectors-inl.h"
#include "kvm/kernels/cpu/vectors/keep_nan-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvm {
namespace HWY_NAMESPACE {

// 1/(1 + exp(−x)), through exp(−|x|) alone so that nothing overflows and small results keep their digits.
HWY_INLINE FloatVector SigmoidOf(FloatVector x) {
  const FloatTag d;
  const FloatVector e = hn::Exp(d, hn::Neg(hn::Abs(x)));
  const FloatVector one = hn::Set(d, 1.0f);
  const FloatVector numerator = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one);
  return KeepNan(x, hn::Div(numerator, hn::Add(one, e)));
}

// x·σ(x). The result is 0 long before x = −200, whose place −∞ takes: −∞·0 would be no number.
HWY_INLINE FloatVector SiluOf(FloatVector x) { return hn::Mul(hn::Max(x, hn::Set(FloatTag(), -200.0f)), SigmoidOf(x)); }

}  // namespace HWY_NAMESPACE
}  // namespace kvm
HWY_AFTER_NAMESPACE();

#endif  // toggled once per instruction set
