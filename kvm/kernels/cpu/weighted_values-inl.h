// Values of keys, weighted and added up. Included once per instruction set.

// clang-format off
#if defined(KVM_KERNELS_CPU_WEIGHTED_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT
// clang-format on
#ifdef KVM_KERNELS_CPU_WEIGHTED_VALUES_INL_H_
#undef KVM_KERNELS_CPU_WEIGHTED_VALUES_INL_H_
#else
#define KVM_KERNELS_CPU_WEIGHTED_VALUES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kvm/kernels/aligned_buffer.h"
#include "kvm/kernels/cpu/key_range.h"
#include "kvm/kernels/cpu/vectors/float_vectors-inl.h"
#include "kvm/kernels/matrix_view.h"

HWY_BEFORE_NAMESPACE();
namespace kvm {
namespace HWY_NAMESPACE {

// sums[0..8·lanes) += Σ over keys in range, ascending, of weight·value: one query.
template <typename Value>
HWY_INLINE void AddValues1x8(const float* HWY_RESTRICT weights, KeyRange range, const Value* HWY_RESTRICT values,
                             int64_t stride, float* HWY_RESTRICT sums) {
  const PanelTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  // Values further on are fetched meanwhile.
  constexpr int64_t kLine = kCacheLineBytes / static_cast<int64_t>(sizeof(Value));
  constexpr int64_t kAhead = 64 * kLine;
  auto sum0 = hn::LoadU(d, sums), sum1 = hn::LoadU(d, sums + lanes);
  auto sum2 = hn::LoadU(d, sums + 2 * lanes), sum3 = hn::LoadU(d, sums + 3 * lanes);
  auto sum4 = hn::LoadU(d, sums + 4 * lanes), sum5 = hn::LoadU(d, sums + 5 * lanes);
  auto sum6 = hn::LoadU(d, sums + 6 * lanes), sum7 = hn::LoadU(d, sums + 7 * lanes);
  for (int64_t i = range.begin; i < range.end; ++i) {
    const auto weight = hn::Set(d, weights[i]);
    const Value* HWY_RESTRICT value = values + i * stride;
    for (int64_t c = 0; c < 8 * lanes; c += kLine) hwy::Prefetch(value + kAhead + c);
    sum0 = hn::MulAdd(weight, LoadFloats(d, value), sum0);
    sum1 = hn::MulAdd(weight, LoadFloats(d, value + lanes), sum1);
    sum2 = hn::MulAdd(weight, LoadFloats(d, value + 2 * lanes), sum2);
    sum3 = hn::MulAdd(weight, LoadFloats(d, value + 3 * lanes), sum3);
    sum4 = hn::MulAdd(weight, LoadFloats(d, value + 4 * lanes), sum4);
    sum5 = hn::MulAdd(weight, LoadFloats(d, value + 5 * lanes), sum5);
    sum6 = hn::MulAdd(weight, LoadFloats(d, value + 6 * lanes), sum6);
    sum7 = hn::MulAdd(weight, LoadFloats(d, value + 7 * lanes), sum7);
  }
  hn::StoreU(sum0, d, sums);
  hn::StoreU(sum1, d, sums + lanes);
  hn::StoreU(sum2, d, sums + 2 * lanes);
  hn::StoreU(sum3, d, sums + 3 * lanes);
  hn::StoreU(sum4, d, sums + 4 * lanes);
  hn::StoreU(sum5, d, sums + 5 * lanes);
  hn::StoreU(sum6, d, sums + 6 * lanes);
  hn::StoreU(sum7, d, sums + 7 * lanes);
}

// The same for two vectors of channels.
template <typename Value>
HWY_INLINE void AddValues1x2(const float* HWY_RESTRICT weights, KeyRange range, const Value* HWY_RESTRICT values,
                             int64_t stride, float* HWY_RESTRICT sums) {
  const PanelTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::LoadU(d, sums), sum1 = hn::LoadU(d, sums + lanes);
  for (int64_t i = range.begin; i < range.end; ++i) {
    const auto weight = hn::Set(d, weights[i]);
    sum0 = hn::MulAdd(weight, LoadFloats(d, values + i * stride), sum0);
    sum1 = hn::MulAdd(weight, LoadFloats(d, values + i * stride + lanes), sum1);
  }
  hn::StoreU(sum0, d, sums);
  hn::StoreU(sum1, d, sums + lanes);
}

// The same for two vectors of channels and six queries, rows of `weights` and of `sums`: as many as fit 16 registers.
template <typename Value>
HWY_INLINE void AddValues6x2(MatrixView<const float> weights, KeyRange range, const Value* HWY_RESTRICT values,
                             int64_t stride, MatrixView<float> sums) {
  const PanelTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* HWY_RESTRICT w0 = weights.row(0);
  const float* HWY_RESTRICT w1 = weights.row(1);
  const float* HWY_RESTRICT w2 = weights.row(2);
  const float* HWY_RESTRICT w3 = weights.row(3);
  const float* HWY_RESTRICT w4 = weights.row(4);
  const float* HWY_RESTRICT w5 = weights.row(5);
  auto a0 = hn::LoadU(d, sums.row(0)), b0 = hn::LoadU(d, sums.row(0) + lanes);
  auto a1 = hn::LoadU(d, sums.row(1)), b1 = hn::LoadU(d, sums.row(1) + lanes);
  auto a2 = hn::LoadU(d, sums.row(2)), b2 = hn::LoadU(d, sums.row(2) + lanes);
  auto a3 = hn::LoadU(d, sums.row(3)), b3 = hn::LoadU(d, sums.row(3) + lanes);
  auto a4 = hn::LoadU(d, sums.row(4)), b4 = hn::LoadU(d, sums.row(4) + lanes);
  auto a5 = hn::LoadU(d, sums.row(5)), b5 = hn::LoadU(d, sums.row(5) + lanes);
  const auto add = [d](float x, auto value0, auto value1, auto& sum0, auto& sum1) HWY_ATTR {
    const auto weight = hn::Set(d, x);
    sum0 = hn::MulAdd(weight, value0, sum0);
    sum1 = hn::MulAdd(weight, value1, sum1);
  };
  for (int64_t i = range.begin; i < range.end; ++i) {
    const auto value0 = LoadFloats(d, values + i * stride);
    const auto value1 = LoadFloats(d, values + i * stride + lanes);
    add(w0[i], value0, value1, a0, b0);
    add(w1[i], value0, value1, a1, b1);
    add(w2[i], value0, value1, a2, b2);
    add(w3[i], value0, value1, a3, b3);
    add(w4[i], value0, value1, a4, b4);
    add(w5[i], value0, value1, a5, b5);
  }
  const auto store = [&](int64_t r, auto sum0, auto sum1) HWY_ATTR {
    hn::StoreU(sum0, d, sums.row(r));
    hn::StoreU(sum1, d, sums.row(r) + lanes);
  };
  store(0, a0, b0);
  store(1, a1, b1);
  store(2, a2, b2);
  store(3, a3, b3);
  store(4, a4, b4);
  store(5, a5, b5);
}

// sums[r] += Σ over the keys of ranges[r], ascending, of weights[r, i]·value i.  sums.cols: a multiple of 2·lanes.
// Keys that only some of six queries see are added for these alone: a value out of sight is never touched.
template <typename Value>
HWY_INLINE void AddValues(MatrixView<const float> weights, const KeyRange* ranges, const Value* HWY_RESTRICT values,
                          int64_t stride, MatrixView<float> sums) {
  const int64_t lanes = PanelLanes();
  int64_t c = 0;
  if (sums.rows == 1) {
    for (; c + 8 * lanes <= sums.cols; c += 8 * lanes) {
      AddValues1x8(weights.row(0), ranges[0], values + c, stride, sums.row(0) + c);
    }
  }
  for (; c < sums.cols; c += 2 * lanes) {
    const auto add = [&](int64_t r, KeyRange range) HWY_ATTR {
      if (!range.empty()) AddValues1x2(weights.row(r), range, values + c, stride, sums.row(r) + c);
    };
    for (int64_t r = 0; r < sums.rows;) {
      KeyRange common = ranges[r];
      if (r + 6 <= sums.rows) {
        for (int64_t j = r + 1; j < r + 6; ++j) {
          common = {std::max(common.begin, ranges[j].begin), std::min(common.end, ranges[j].end)};
        }
      }
      if (r + 6 > sums.rows || common.empty()) {
        add(r, ranges[r]);
        ++r;
        continue;
      }
      for (int64_t j = r; j < r + 6; ++j) add(j, {ranges[j].begin, common.begin});
      AddValues6x2(weights.Rows(r, 6), common, values + c, stride, sums.Rows(r, 6).Cols(c, 2 * lanes));
      for (int64_t j = r; j < r + 6; ++j) add(j, {common.end, ranges[j].end});
      r += 6;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvm
HWY_AFTER_NAMESPACE();

#endif  // toggled once per instruction set
