// Which shapes go which way, and what is read from memory how often.
//
// Work is cut into tiles of queries of one head, the largest of kQueryTiles of which every thread gets four or more. A
// tile goes through its segments in order, 64 keys at a time (kKeyTile): scores, then softmax weights against the
// running maximum, then weighted values. A maximum that grows shrinks what is summed up so far.
//
//   Several queries (prompts): a key tile and its values are read from memory once a query tile, from the nearest cache
//   after that. Scores take six queries by two vectors of keys at a time (Dots6x2), values six queries by two vectors
//   of channels (AddValues6x2): twelve sums in flight, which is what arithmetic needs to be the limit. Queries that see
//   other keys of the tile than the rest of their six are added alone, key by key.
//   One query (a decoded token): everything is read once and memory is the limit. Scores of up to 64 tiles are computed
//   in one run (kRunTiles) over four panels side by side, then values in eight vectors of channels, each as one long
//   stream with prefetches.
//
// Keys and values of 2 bytes or 1 are widened in registers; nothing is stored as float32 but scores of one tile or run
// (dots, 34 KiB at most) and sums [queries, v_dim]. Channels that fill no pair of vectors go through a padded copy of a
// tile's last columns. Two ways give the same bits: a score is one sum over channels, a value's sum one over keys.

#include "kvm/kernels/cpu/slot_attention.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory_resource>

#include "kvm/base/check.h"
#include "kvm/kernels/bfloat16.h"
#include "kvm/kernels/check_view.h"
#include "kvm/kernels/cpu/key_range.h"
#include "kvm/kernels/work_buffer.h"

// Highway includes this very file once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvm/kernels/cpu/slot_attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kvm/kernels/cpu/panel_dots-inl.h"
#include "kvm/kernels/cpu/vectors/keep_nan-inl.h"
#include "kvm/kernels/cpu/weighted_values-inl.h"

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

// One tile of one segment for all queries of a query tile, whose dot products with it are in `weights`. `visible` is
// the union of `ranges`.
template <typename Element>
void AttendToTile(MatrixView<float> weights, const Element* values, const TileFactors& factors, int64_t v_dim,
                  float scale, const KeyRange* ranges, KeyRange visible, SoftmaxState* states, MatrixView<float> sums) {
  const int64_t lanes = PanelLanes();
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
