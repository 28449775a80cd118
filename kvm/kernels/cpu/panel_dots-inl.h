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

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kvm/kernels/aligned_buffer.h"
#include "kvm/kernels/cpu/vectors/float_vectors-inl.h"
#include "kvm/kernels/key_value.h"
#include "kvm/kernels/matrix_view.h"

HWY_BEFORE_NAMESPACE();
namespace kvm {
namespace HWY_NAMESPACE {

static_assert(kKeyPanel % hn::MaxLanes(PanelTag()) == 0, "a vector of keys lies in one panel");

// Vectors of keys that one query is multiplied with at once, of four panels where vectors are half a panel wide or
// more: each panel is read in order, and processors follow few such streams by themselves.
constexpr int64_t kDots1Vectors = hn::MaxLanes(PanelTag()) == kKeyPanel ? 4 : 8;

// How far ahead the keys of each panel are asked for, in bytes.
constexpr int64_t kDots1AheadBytes = 2560;

// dots[i] = query·key i for the key `first` and those that fill kDots1Vectors vectors with it: its panel's, and those
// of panels each `stride` keys further, as far as there are `num_keys`.
template <typename Key>
HWY_INLINE void Dots1(const float* HWY_RESTRICT query, int64_t dim, const Key* HWY_RESTRICT panels, int64_t first,
                      int64_t stride, int64_t num_keys, float* HWY_RESTRICT dots) {
  const PanelTag d;
  constexpr int64_t kAhead = kDots1AheadBytes / static_cast<int64_t>(sizeof(Key));
  constexpr int64_t kLineChannels = kCacheLineBytes / (kKeyPanel * static_cast<int64_t>(sizeof(Key)));
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t panel_vectors = kKeyPanel / lanes;
  const auto key_of = [&](int64_t v) { return first + v / panel_vectors * stride + v % panel_vectors * lanes; };
  // Past the last key: the first one again.
  const auto keys_of = [&](int64_t v) {
    return panels + KeyPanelOffset(key_of(v) < num_keys ? key_of(v) : first, 0, dim);
  };
  const Key* HWY_RESTRICT k0 = keys_of(0);
  const Key* HWY_RESTRICT k1 = keys_of(1);
  const Key* HWY_RESTRICT k2 = keys_of(2);
  const Key* HWY_RESTRICT k3 = keys_of(3);
  const Key* HWY_RESTRICT k4 = keys_of(4);
  const Key* HWY_RESTRICT k5 = keys_of(5);
  const Key* HWY_RESTRICT k6 = keys_of(6);
  const Key* HWY_RESTRICT k7 = keys_of(7);
  auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  auto sum4 = sum0, sum5 = sum0, sum6 = sum0, sum7 = sum0;
  for (int64_t c = 0; c < dim; ++c) {
    if (c % kLineChannels == 0) {
      hwy::Prefetch(k0 + c * kKeyPanel + kAhead);
      hwy::Prefetch(k1 + c * kKeyPanel + kAhead);
      hwy::Prefetch(k2 + c * kKeyPanel + kAhead);
      hwy::Prefetch(k3 + c * kKeyPanel + kAhead);
    }
    if (kDots1Vectors > 4 && c % kLineChannels == 0) {
      hwy::Prefetch(k4 + c * kKeyPanel + kAhead);
      hwy::Prefetch(k5 + c * kKeyPanel + kAhead);
      hwy::Prefetch(k6 + c * kKeyPanel + kAhead);
      hwy::Prefetch(k7 + c * kKeyPanel + kAhead);
    }
    const auto q = hn::Set(d, query[c]);
    sum0 = hn::MulAdd(q, LoadFloats(d, k0 + c * kKeyPanel), sum0);
    sum1 = hn::MulAdd(q, LoadFloats(d, k1 + c * kKeyPanel), sum1);
    sum2 = hn::MulAdd(q, LoadFloats(d, k2 + c * kKeyPanel), sum2);
    sum3 = hn::MulAdd(q, LoadFloats(d, k3 + c * kKeyPanel), sum3);
    if constexpr (kDots1Vectors > 4) {
      sum4 = hn::MulAdd(q, LoadFloats(d, k4 + c * kKeyPanel), sum4);
      sum5 = hn::MulAdd(q, LoadFloats(d, k5 + c * kKeyPanel), sum5);
      sum6 = hn::MulAdd(q, LoadFloats(d, k6 + c * kKeyPanel), sum6);
      sum7 = hn::MulAdd(q, LoadFloats(d, k7 + c * kKeyPanel), sum7);
    }
  }
  const auto store = [&](int64_t v, auto sum) HWY_ATTR {
    if (key_of(v) < num_keys) hn::StoreU(sum, d, dots + key_of(v));
  };
  store(0, sum0);
  store(1, sum1);
  store(2, sum2);
  store(3, sum3);
  if constexpr (kDots1Vectors > 4) {
    store(4, sum4);
    store(5, sum5);
    store(6, sum6);
    store(7, sum7);
  }
}

// dots[i] = query·key i for all keys in `num_panels` panels.  query: [dim]; dots: [num_panels·kKeyPanel].
template <typename Key>
HWY_INLINE void PanelDots1(const float* HWY_RESTRICT query, int64_t dim, const Key* HWY_RESTRICT panels,
                           int64_t num_panels, float* HWY_RESTRICT dots) {
  const int64_t at_once = kDots1Vectors * PanelLanes();
  const int64_t streams = std::max<int64_t>(1, at_once / kKeyPanel);
  const int64_t stride = (num_panels + streams - 1) / streams * kKeyPanel;
  for (int64_t first = 0; first < stride; first += std::min(at_once, kKeyPanel)) {
    Dots1(query, dim, panels, first, stride, num_panels * kKeyPanel, dots);
  }
}

// Queries that share the loads of two vectors of keys: twelve sums in flight hide the latency of multiply-adds and fit
// 16 registers.
constexpr int64_t kDotsRows = 6;

// Queries first..first+5 and two vectors of keys; queries past the last are the last one again.
template <typename Key>
HWY_INLINE void Dots6x2(MatrixView<const float> queries, int64_t first, const Key* HWY_RESTRICT k0,
                        const Key* HWY_RESTRICT k1, MatrixView<float> dots) {
  const PanelTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto row = [&](int64_t r) { return std::min(first + r, queries.rows - 1); };
  const float* HWY_RESTRICT q0 = queries.row(row(0));
  const float* HWY_RESTRICT q1 = queries.row(row(1));
  const float* HWY_RESTRICT q2 = queries.row(row(2));
  const float* HWY_RESTRICT q3 = queries.row(row(3));
  const float* HWY_RESTRICT q4 = queries.row(row(4));
  const float* HWY_RESTRICT q5 = queries.row(row(5));
  auto a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0;
  auto b0 = a0, b1 = a0, b2 = a0, b3 = a0, b4 = a0, b5 = a0;
  const auto add = [d](float x, auto key0, auto key1, auto& sum0, auto& sum1) HWY_ATTR {
    const auto q = hn::Set(d, x);
    sum0 = hn::MulAdd(q, key0, sum0);
    sum1 = hn::MulAdd(q, key1, sum1);
  };
  for (int64_t c = 0; c < queries.cols; ++c) {
    const auto key0 = LoadFloats(d, k0 + c * kKeyPanel);
    const auto key1 = LoadFloats(d, k1 + c * kKeyPanel);
    add(q0[c], key0, key1, a0, b0);
    add(q1[c], key0, key1, a1, b1);
    add(q2[c], key0, key1, a2, b2);
    add(q3[c], key0, key1, a3, b3);
    add(q4[c], key0, key1, a4, b4);
    add(q5[c], key0, key1, a5, b5);
  }
  const auto store = [&](int64_t r, auto sum0, auto sum1) HWY_ATTR {
    hn::StoreU(sum0, d, dots.row(row(r)));
    hn::StoreU(sum1, d, dots.row(row(r)) + lanes);
  };
  store(0, a0, b0);
  store(1, a1, b1);
  store(2, a2, b2);
  store(3, a3, b3);
  store(4, a4, b4);
  store(5, a5, b5);
}

// dots[r, i] = queries[r]·key i for the kTile keys in kTile/kKeyPanel panels at `panels`, of which only the first
// `num_panels` >= 1 are in memory; what is stored for keys beyond them means nothing.
// queries: [n, dim]; dots: [n, kTile]. kTile is a multiple of 2·kKeyPanel.
template <int64_t kTile, typename Key>
HWY_INLINE void PanelDots(MatrixView<const float> queries, const Key* HWY_RESTRICT panels, int64_t num_panels,
                          MatrixView<float> dots) {
  static_assert(kTile % (2 * kKeyPanel) == 0, "every vector width divides the tile into pairs");
  const int64_t lanes = PanelLanes();
  const int64_t dim = queries.cols;
  const int64_t present = std::min(kTile, num_panels * kKeyPanel);
  // Past the panels in memory: any that are, instead.
  const auto keys_at = [&](int64_t i) { return panels + KeyPanelOffset(i < present ? i : 0, 0, dim); };
  for (int64_t i = 0; i < present; i += 2 * lanes) {
    for (int64_t r = 0; r < queries.rows; r += kDotsRows) {
      Dots6x2(queries, r, keys_at(i), keys_at(i + lanes), dots.Cols(i, 2 * lanes));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvm
HWY_AFTER_NAMESPACE();

#endif  // KVM_KERNELS_CPU_PANEL_DOTS_INL_H_
