// Loads and stores of a vector's first lanes, for the end of a row. Included once per instruction set.

// clang-format off
#if defined(KVM_KERNELS_CPU_VECTORS_PARTIAL_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT
// clang-format on
#ifdef KVM_KERNELS_CPU_VECTORS_PARTIAL_VECTOR_INL_H_
#undef KVM_KERNELS_CPU_VECTORS_PARTIAL_VECTOR_INL_H_
#else
#define KVM_KERNELS_CPU_VECTORS_PARTIAL_VECTOR_INL_H_
#endif

#include <algorithm>
#include <cstddef>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvm {
namespace HWY_NAMESPACE {

// p[0..count) in the first lanes and zero in the others; count <= Lanes(d). Touches no memory past p + count.
template <class D, typename T = hwy::HWY_NAMESPACE::TFromD<D>>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> LoadFirst(D d, const T* p, size_t count) {
  if (count == hwy::HWY_NAMESPACE::Lanes(d)) return hwy::HWY_NAMESPACE::LoadU(d, p);
  HWY_ALIGN T lanes[hwy::HWY_NAMESPACE::MaxLanes(d)] = {};
  std::copy_n(p, count, lanes);
  return hwy::HWY_NAMESPACE::Load(d, lanes);
}

// Writes the first `count` lanes of v to p[0..count).
template <class D, typename T = hwy::HWY_NAMESPACE::TFromD<D>>
HWY_INLINE void StoreFirst(hwy::HWY_NAMESPACE::Vec<D> v, D d, T* p, size_t count) {
  if (count == hwy::HWY_NAMESPACE::Lanes(d)) {
    hwy::HWY_NAMESPACE::StoreU(v, d, p);
    return;
  }
  HWY_ALIGN T lanes[hwy::HWY_NAMESPACE::MaxLanes(d)];
  hwy::HWY_NAMESPACE::Store(v, d, lanes);
  std::copy_n(lanes, count, p);
}

}  // namespace HWY_NAMESPACE
}  // namespace kvm
HWY_AFTER_NAMESPACE();

#endif  // toggled once per instruction set
