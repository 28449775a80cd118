#include "kvm/kernels/cpu/slot_attention.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory_resource>

#include "kvm/base/check.h"
#include "kvm/kernels/aligned_buffer.h"
#include "kvm/kernels/bfloat16.h"
#include "kvm/kernels/check_view.h"
#include "kvm/kernels/work_buffer.h"

// Highway includes this very file once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvm/kernels/cpu/slot_attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/cache_control.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kvm/kernels/cpu/panel_dots-inl.h"
#include "kvm/kernels/cpu/vectors/keep_nan-inl.h"

// Once, for all instruction sets.
#ifndef KVM_KERNELS_CPU_SLOT_ATTENTION_SHARED_
#define KVM_KERNELS_CPU_SLOT_ATTENTION_SHARED_
namespace kvm {
namespace {

// Keys that share one step of the running softmax, counted from their segment's start: part of the result's bits.
constexpr int64_t kKeyTile = 64;

// Queries that share the loads of a key tile, multiples of six: the most that leave every thread enough to do.
// No part of the result's bits.
constexpr int64_t kQueryTiles[] = {132, 66, 36};
constexpr int64_t kQueryTile = kQueryTiles[0];

// Tiles whose keys a single query goes through before it takes up their values: memory binds it, which likes long runs.
// No part of the result's bits.
constexpr int64_t kRunTiles = 64;

int64_t NumQueryTiles(const AttentionHead& head, int64_t query_tile) {
  return (head.queries.rows + query_tile - 1) / query_tile;
}

int64_t NumQueryTiles(absl::Span<const AttentionHead> heads, int64_t query_tile) {
  int64_t tiles = 0;
  for (const AttentionHead& head : heads) tiles += NumQueryTiles(head, query_tile);
  return tiles;
}

// Keys begin <= i < end of a tile or segment; empty when begin >= end.
struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool empty() const { return begin >= end; }
};

float ScalarFloat(float x) { return x; }
float ScalarFloat(BFloat16 x) { return ToFloat(x); }
float ScalarFloat(int8_t x) { return x; }

// The keys of `segment` that the query at `position` sees.
KeyRange VisibleKeys(const KeyValueSegment& segment, int64_t position, int64_t span) {
  if (segment.is_state) return {0, segment.count};
  const int64_t newest = position - segment.first_position;
  const int64_t oldest = span > newest ? 0 : newest - span + 1;
  return {std::max<int64_t>(oldest, 0), std::min(newest + 1, segment.count)};
}

// What belongs to each of up to kKeyTile keys of a segment, besides keys and values (null for nothing).
struct TileFactors {
  const float* key_scales = nullptr;
  const float* biases = nullptr;
  const float* value_scales = nullptr;
};

// What the softmax over the tiles so far needs to go on, besides the weighted sum of values.
struct SoftmaxState {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0;
  bool saw_key = false;
};

}  // namespace
}  // namespace kvm
#endif  // KVM_KERNELS_CPU_SLOT_ATTENTION_SHARED_

HWY_BEFORE_NAMESPACE();
namespace kvm {
namespace HWY_NAMESPACE {
namespace {

// Turns one query's dot products with a tile into softmax weights relative to the running maximum, which may grow: then
// `state` and `sums`, the weighted sum of values so far, are scaled down to it. What goes to `row` is what values are
// to be multiplied with. Lanes out of `range` are not looked at.
void SoftmaxTile(float* HWY_RESTRICT row, KeyRange range, float scale, const TileFactors& factors, SoftmaxState& state,
                 float* HWY_RESTRICT sums, int64_t num_sums) {
  const PanelTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t first = range.begin / lanes * lanes;
  const auto begin = hn::Set(d, static_cast<float>(range.begin));
  const auto end = hn::Set(d, static_cast<float>(range.end));
  const auto visible = [&](int64_t i) HWY_ATTR {
    const auto index = hn::Iota(d, static_cast<float>(i));
    return hn::And(hn::Ge(index, begin), hn::Lt(index, end));
  };

  auto tile_max = hn::Set(d, state.max);
  for (int64_t i = first; i < range.end; i += lanes) {
    auto score = hn::LoadU(d, row + i);
    if (factors.key_scales != nullptr) score = hn::Mul(score, hn::LoadU(d, factors.key_scales + i));
    score = hn::Mul(score, hn::Set(d, scale));
    if (factors.biases != nullptr) score = hn::Add(score, hn::LoadU(d, factors.biases + i));
    hn::StoreU(score, d, row + i);
    tile_max = MaxOfNumbers(tile_max, hn::IfThenElse(visible(i), score, tile_max));
  }
  const float max = hn::GetLane(hn::MaxOfLanes(d, tile_max));
  if (max > state.max) {
    if (state.sum > 0) {
      const auto shrink = hn::Exp(d, hn::Set(d, state.max - max));
      state.sum *= hn::GetLane(shrink);
      for (int64_t c = 0; c < num_sums; c += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, sums + c), shrink), d, sums + c);
    }
    state.max = max;
  }

  // A score of −inf weighs nothing, also where no larger one was met yet. One of +inf or NaN has no weight: NaN it is,
  // and with the sum everything becomes NaN.
  const auto base = hn::Set(d, state.max == -std::numeric_limits<float>::infinity() ? 0.0f : state.max);
  // Lanes out of sight add +0, which changes no bit of the sum.
  auto tile_sum = hn::Zero(d);
  for (int64_t i = first; i < range.end; i += lanes) {
    const auto mask = visible(i);
    const auto below_max = hn::Sub(hn::LoadU(d, row + i), base);
    const auto weight = hn::IfThenElseZero(mask, KeepNan(below_max, hn::Exp(d, below_max)));
    tile_sum = hn::Add(tile_sum, weight);
    const auto scales = factors.value_scales == nullptr ? hn::Set(d, 1.0f) : hn::LoadU(d, factors.value_scales + i);
    hn::StoreU(hn::Mul(weight, scales), d, row + i);
  }
  state.sum += hn::GetLane(hn::SumOfLanes(d, tile_sum));
}

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
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(PanelTag()));
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

// One tile of one segment for all queries of a query tile, whose dot products with it are in `weights`. `visible` is
// the union of `ranges`.
template <typename Element>
void AttendToTile(MatrixView<float> weights, const Element* values, const TileFactors& factors, int64_t v_dim,
                  float scale, const KeyRange* ranges, KeyRange visible, SoftmaxState* states, MatrixView<float> sums) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(PanelTag()));
  for (int64_t r = 0; r < weights.rows; ++r) {
    if (ranges[r].empty()) continue;
    states[r].saw_key = true;
    SoftmaxTile(weights.row(r), ranges[r], scale, factors, states[r], sums.row(r), sums.cols);
  }

  const int64_t whole = v_dim / (2 * lanes) * (2 * lanes);
  AddValues(weights, ranges, values, v_dim, sums.Cols(0, whole));
  if (whole == v_dim) return;
  // The last channels fill no pair of vectors: from a padded copy.
  HWY_ALIGN float padded[kKeyTile * 2 * kKeyPanel];
  for (int64_t i = visible.begin; i < visible.end; ++i) {
    float* to = padded + i * 2 * lanes;
    for (int64_t c = 0; c < 2 * lanes; ++c) {
      to[c] = whole + c < v_dim ? ScalarFloat(values[i * v_dim + whole + c]) : 0.0f;
    }
  }
  AddValues(weights, ranges, padded, 2 * lanes, sums.Cols(whole, 2 * lanes));
}

template <typename Element>
void AttendToSegment(const AttentionHead& head, int64_t first_query, int64_t num_queries,
                     const KeyValueSegment& segment, SoftmaxState* states, MatrixView<float> sums) {
  const bool own_queries = segment.is_state && head.state_queries.rows > 0;
  const MatrixView<const float> queries =
      (own_queries ? head.state_queries : head.queries).Rows(first_query, num_queries);
  const float scale = segment.is_state ? head.state_scale : head.window_scale;
  const auto num_panels = [](int64_t keys) { return (keys + kKeyPanel - 1) / kKeyPanel; };
  const Element* const all_keys = static_cast<const Element*>(segment.keys);
  HWY_ALIGN float dots[std::max(kQueryTile, kRunTiles) * kKeyTile];
  MatrixView<float> weights(dots, num_queries, kKeyTile);
  KeyRange run;
  for (int64_t first = 0; first < segment.count; first += kKeyTile) {
    KeyRange ranges[kQueryTile];
    KeyRange visible = {kKeyTile, 0};
    int64_t end = 0;  // of what any query sees, in this tile or later ones
    for (int64_t r = 0; r < num_queries; ++r) {
      const KeyRange all = VisibleKeys(segment, head.first_position + first_query + r, head.span);
      ranges[r] = {std::max(all.begin - first, int64_t{0}), std::min(all.end - first, kKeyTile)};
      if (ranges[r].empty()) continue;
      visible = {std::min(visible.begin, ranges[r].begin), std::max(visible.end, ranges[r].end)};
      end = std::max(end, all.end);
    }
    if (visible.empty()) continue;
    const Element* const keys = all_keys + first * queries.cols;
    if (num_queries > 1) {
      PanelDots<kKeyTile>(queries, keys, num_panels(visible.end), weights);
    } else {
      if (first >= run.end) {
        run = {first, first + kRunTiles * kKeyTile};
        PanelDots1(queries.row(0), queries.cols, keys, num_panels(std::min(end, run.end) - first), dots);
      }
      weights.data = dots + (first - run.begin);
    }
    const auto from_first = [first](const float* of_keys) { return of_keys == nullptr ? nullptr : of_keys + first; };
    const Element* const values = static_cast<const Element*>(segment.values) + first * head.out.cols;
    const TileFactors factors = {from_first(segment.key_scales), from_first(segment.biases),
                                 from_first(segment.value_scales)};
    AttendToTile(weights, values, factors, head.out.cols, scale, ranges, visible, states, sums);
  }
}

void AttendImpl(const AttentionHead& head, int64_t first_query, int64_t num_queries,
                std::pmr::memory_resource* memory) {
  const PanelTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t padded_dim = (head.out.cols + 2 * lanes - 1) / (2 * lanes) * (2 * lanes);
  const WorkBuffer buffer(num_queries * padded_dim, memory);
  const MatrixView<float> sums(buffer.data(), num_queries, padded_dim);
  SoftmaxState states[kQueryTile];
  for (const KeyValueSegment& segment : head.segments) {
    if (segment.dtype == DType::kBF16) {
      AttendToSegment<BFloat16>(head, first_query, num_queries, segment, states, sums);
    } else if (segment.dtype == DType::kI8) {
      AttendToSegment<int8_t>(head, first_query, num_queries, segment, states, sums);
    } else {
      AttendToSegment<float>(head, first_query, num_queries, segment, states, sums);
    }
  }
  for (int64_t r = 0; r < num_queries; ++r) {
    const auto total = hn::Set(d, states[r].saw_key ? states[r].sum : 1.0f);
    float* row = sums.row(r);
    for (int64_t c = 0; c < padded_dim; c += lanes) hn::StoreU(hn::Div(hn::LoadU(d, row + c), total), d, row + c);
    std::memcpy(head.out.row(first_query + r), row, static_cast<size_t>(head.out.cols) * sizeof(float));
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvm {

HWY_EXPORT(AttendImpl);

namespace {

void CheckSegment(const KeyValueSegment& segment, CallSite site) {
  const bool integers = segment.dtype == DType::kI8;
  CheckAtLeast(segment.count, 0, "segment.count", site);
  Check(integers || segment.dtype == DType::kF32 || segment.dtype == DType::kBF16,
        "segment.dtype to be F32, BF16 or I8", site);
  if (segment.count == 0) return;
  Check(segment.keys != nullptr && segment.values != nullptr, "a segment with memory for keys and values", site);
  Check(!integers || (segment.key_scales != nullptr && segment.value_scales != nullptr),
        "a segment of integers with scales", site);
}

void CheckHead(const AttentionHead& head, CallSite site) {
  CheckAtLeast(head.queries.cols, 1, "queries.cols", site);
  CheckAtLeast(head.out.cols, 1, "out.cols", site);
  CheckAtLeast(head.span, 0, "span", site);
  CheckView(head.queries, "queries", site);
  CheckView(head.out, head.queries.rows, head.out.cols, "out", site);
  CheckApart(head.out, head.queries, "out to share no memory with queries", site);
  if (head.state_queries.rows > 0) {
    CheckView(head.state_queries, head.queries.rows, head.queries.cols, "state_queries", site);
    CheckApart(head.out, head.state_queries, "out to share no memory with state_queries", site);
  }
  for (const KeyValueSegment& segment : head.segments) CheckSegment(segment, site);
}

}  // namespace

void SlotAttention(absl::Span<const AttentionHead> heads, ThreadPool& pool) {
  for (const AttentionHead& head : heads) CheckHead(head, CallSite::Here());
  const int64_t query_tile = *std::find_if(std::begin(kQueryTiles), std::end(kQueryTiles) - 1, [&](int64_t tile) {
    return NumQueryTiles(heads, tile) >= int64_t{4} * pool.num_threads();
  });
  const auto attend = HWY_DYNAMIC_DISPATCH(AttendImpl);
  pool.ParallelFor(NumQueryTiles(heads, query_tile), [&](int64_t tile) {
    const AttentionHead* head = heads.data();
    for (; tile >= NumQueryTiles(*head, query_tile); ++head) tile -= NumQueryTiles(*head, query_tile);
    const int64_t first = tile * query_tile;
    const int64_t count = std::min(query_tile, head->queries.rows - first);
    attend(*head, first, count, pool.memory());
  });
}

}  // namespace kvm
#endif  // HWY_ONCE
