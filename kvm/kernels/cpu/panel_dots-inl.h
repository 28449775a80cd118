// Dot products of queries with keys in panels (key_value.h), vectors across keys. Included once per instruction set.
//
// Each product is one float32 sum over channels in ascending order, whatever is computed beside it.

// Toggled rather than defined once: foreach_target.h includes this file again for every instruction set.
#if defined(KVM_KERNELS_CPU_PANEL_DOTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVM_KERNELS_CPU_PANEL_DOTS_INL_H_
#undef KVM_KERNELS_CPU_PANEL_DOTS_INL_H_
#else
#define KVM_KERNELS_CPU_PANEL_DOTS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kvm/kernels/bfloat16.h"
#include "kvm/kernels/key_value.h"
#include "kvm/kernels/matrix_view.h"

HWY_BEFORE_NAMESPACE();
namespace kvm {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// No wider than a panel.
using PanelTag = hn::CappedTag<float, kKeyPanel>;

HWY_INLINE hn::Vec<PanelTag> LoadFloats(PanelTag d, const float* p) { return hn::LoadU(d, p); }

HWY_INLINE hn::Vec<PanelTag> LoadFloats(PanelTag d, const BFloat16* p) {
  const hn::RebindToUnsigned<PanelTag> d32;
  const hn::Rebind<uint16_t, PanelTag> d16;
  const auto upper_halves = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)));
  return hn::BitCast(d, hn::ShiftLeft<16>(upper_halves));
}

HWY_INLINE hn::Vec<PanelTag> LoadFloats(PanelTag d, const int8_t* p) {
  const hn::Rebind<int32_t, PanelTag> d32;
  const hn::Rebind<int8_t, PanelTag> d8;
  return hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, p)));
}

// One query and four vectors of keys, each at its own address: enough sums in flight to hide the latency of an
// addition.
template <typename Key>
HWY_INLINE void Dots1x4(const float* HWY_RESTRICT query, int64_t dim, const Key* HWY_RESTRICT k0,
                        const Key* HWY_RESTRICT k1, const Key* HWY_RESTRICT k2, const Key* HWY_RESTRICT k3,
                        float* HWY_RESTRICT dots) {
  const PanelTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  for (int64_t c = 0; c < dim; ++c) {
    const auto q = hn::Set(d, query[c]);
    sum0 = hn::MulAdd(q, LoadFloats(d, k0 + c * kKeyPanel), sum0);
    sum1 = hn::MulAdd(q, LoadFloats(d, k1 + c * kKeyPanel), sum1);
    sum2 = hn::MulAdd(q, LoadFloats(d, k2 + c * kKeyPanel), sum2);
    sum3 = hn::MulAdd(q, LoadFloats(d, k3 + c * kKeyPanel), sum3);
  }
  hn::StoreU(sum0, d, dots);
  hn::StoreU(sum1, d, dots + lanes);
  hn::StoreU(sum2, d, dots + 2 * lanes);
  hn::StoreU(sum3, d, dots + 3 * lanes);
}

// Queries r0..r3 and two vectors of keys.
template <typename Key>
HWY_INLINE void Dots4x2(MatrixView<const float> queries, int64_t r0, int64_t r1, int64_t r2, int64_t r3,
                        const Key* HWY_RESTRICT k0, const Key* HWY_RESTRICT k1, MatrixView<float> dots) {
  const PanelTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* HWY_RESTRICT q0 = queries.row(r0);
  const float* HWY_RESTRICT q1 = queries.row(r1);
  const float* HWY_RESTRICT q2 = queries.row(r2);
  const float* HWY_RESTRICT q3 = queries.row(r3);
  auto sum00 = hn::Zero(d), sum01 = hn::Zero(d), sum10 = hn::Zero(d), sum11 = hn::Zero(d);
  auto sum20 = hn::Zero(d), sum21 = hn::Zero(d), sum30 = hn::Zero(d), sum31 = hn::Zero(d);
  for (int64_t c = 0; c < queries.cols; ++c) {
    const auto key0 = LoadFloats(d, k0 + c * kKeyPanel);
    const auto key1 = LoadFloats(d, k1 + c * kKeyPanel);
    auto q = hn::Set(d, q0[c]);
    sum00 = hn::MulAdd(q, key0, sum00);
    sum01 = hn::MulAdd(q, key1, sum01);
    q = hn::Set(d, q1[c]);
    sum10 = hn::MulAdd(q, key0, sum10);
    sum11 = hn::MulAdd(q, key1, sum11);
    q = hn::Set(d, q2[c]);
    sum20 = hn::MulAdd(q, key0, sum20);
    sum21 = hn::MulAdd(q, key1, sum21);
    q = hn::Set(d, q3[c]);
    sum30 = hn::MulAdd(q, key0, sum30);
    sum31 = hn::MulAdd(q, key1, sum31);
  }
  hn::StoreU(sum00, d, dots.row(r0));
  hn::StoreU(sum01, d, dots.row(r0) + lanes);
  hn::StoreU(sum10, d, dots.row(r1));
  hn::StoreU(sum11, d, dots.row(r1) + lanes);
  hn::StoreU(sum20, d, dots.row(r2));
  hn::StoreU(sum21, d, dots.row(r2) + lanes);
  hn::StoreU(sum30, d, dots.row(r3));
  hn::StoreU(sum31, d, dots.row(r3) + lanes);
}

// dots[r, i] = queries[r]·key i for the kTile keys in kTile/kKeyPanel panels at `panels`, of which only the first
// `num_panels` >= 1 are in memory; what is stored for keys beyond them means nothing.
// queries: [n, dim]; dots: [n, kTile]. kTile is a multiple of 4·kKeyPanel.
template <int64_t kTile, typename Key>
HWY_INLINE void PanelDots(MatrixView<const float> queries, const Key* HWY_RESTRICT panels, int64_t num_panels,
                          MatrixView<float> dots) {
  static_assert(kTile % (4 * kKeyPanel) == 0, "every vector width divides the tile into groups of four");
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(PanelTag()));
  const int64_t dim = queries.cols;
  const int64_t present = std::min(kTile, num_panels * kKeyPanel);
  // Past the panels in memory: any that are, instead.
  const auto keys_at = [&](int64_t i) { return panels + KeyPanelOffset(i < present ? i : 0, 0, dim); };
  if (queries.rows == 1) {
    for (int64_t i = 0; i < present; i += 4 * lanes) {
      Dots1x4(queries.row(0), dim, keys_at(i), keys_at(i + lanes), keys_at(i + 2 * lanes), keys_at(i + 3 * lanes),
              dots.row(0) + i);
    }
    return;
  }
  for (int64_t i = 0; i < present; i += 2 * lanes) {
    for (int64_t r = 0; r < queries.rows; r += 4) {
      // A last group of fewer than four repeats its last query.
      const int64_t last = queries.rows - 1;
      Dots4x2(queries, r, std::min(r + 1, last), std::min(r + 2, last), std::min(r + 3, last), keys_at(i),
              keys_at(i + lanes), dots.Cols(i, 2 * lanes));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvm
HWY_AFTER_NAMESPACE();

#endif  // KVM_KERNELS_CPU_PANEL_DOTS_INL_H_
