// RouteTokens: which row every token goes to.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory_resource>
#include <numeric>
#include <vector>

#include "kvm/base/check.h"
#include "kvm/kernels/cpu/pointwise/norms.h"
#include "kvm/kernels/cpu/slot_checks.h"
#include "kvm/kernels/cpu/slot_update.h"
#include "kvm/kernels/key_panels.h"
#include "kvm/kernels/key_value.h"
#include "kvm/kernels/work_buffer.h"

// Highway includes this very file once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvm/kernels/cpu/slot_routing.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/highway.h"
#include "kvm/kernels/cpu/panel_dots-inl.h"
#include "kvm/kernels/cpu/pointwise/norms-inl.h"
#include "kvm/kernels/cpu/vectors/keep_nan-inl.h"

// Once, for all instruction sets.
#ifndef KVM_KERNELS_CPU_SLOT_ROUTING_SHARED_
#define KVM_KERNELS_CPU_SLOT_ROUTING_SHARED_
namespace kvm {
namespace {

// Rows and tokens that are multiplied with each other at a time; no part of the result.
constexpr int64_t kRowTile = 64;
constexpr int64_t kTokenTile = 36;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The best rows found so far for one token.
struct Route {
  float redundancy = -kInfinity;         // over all rows
  float similarity = -kInfinity;         // over rows that may take tokens
  int64_t row = 0;                       // the lowest of those that reach `similarity`
  float second_similarity = -kInfinity;  // over rows that may take tokens, without `row`
  int64_t second_row = -1;               // the lowest of those that reach it; −1 for none
};

// Moves a route on over rows first_row.., whose dot products with the token are dots[0..count): best and second best.
void RouteToTwo(const float* dots, int64_t first_row, int64_t count, Route& route) {
  for (int64_t i = 0; i < count; ++i) {
    if (dots[i] > route.similarity) {
      route.second_similarity = route.similarity;
      route.second_row = route.similarity > -kInfinity ? route.row : -1;
      route.similarity = dots[i];
      route.row = first_row + i;
    } else if (dots[i] > route.second_similarity) {
      route.second_similarity = dots[i];
      route.second_row = first_row + i;
    }
  }
}

}  // namespace
}  // namespace kvm
#endif  // KVM_KERNELS_CPU_SLOT_ROUTING_SHARED_

HWY_BEFORE_NAMESPACE();
namespace kvm {
namespace HWY_NAMESPACE {
namespace {

// The largest of the numbers in dots[begin..end), NaN left aside; −inf where there is none.
float Largest(const float* dots, int64_t begin, int64_t end) {
  const PanelTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto largest = hn::Set(d, -kInfinity);
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) largest = MaxOfNumbers(largest, hn::LoadU(d, dots + i));
  float result = hn::GetLane(hn::MaxOfLanes(d, largest));
  for (; i < end; ++i) result = std::max(result, dots[i]);
  return result;
}

// Compares keys with the `count` <= kRowTile normalized rows in `panels`, which are rows first_row.. of the state.
void RouteTile(MatrixView<const float> keys, const float* panels, int64_t first_row, int64_t count,
               const SlotUpdateOptions& options, Route* routes) {
  HWY_ALIGN float memory[kTokenTile * kRowTile];
  const int64_t num_panels = (count + kKeyPanel - 1) / kKeyPanel;
  const int64_t sinks = std::min(std::max<int64_t>(options.num_sinks - first_row, 0), count);
  const bool two = options.second_merge != 0;
  for (int64_t token = 0; token < keys.rows; token += kTokenTile) {
    const MatrixView<float> dots(memory, std::min(kTokenTile, keys.rows - token), kRowTile);
    PanelDots<kRowTile>(keys.Rows(token, dots.rows), panels, num_panels, dots);
    for (int64_t t = 0; t < dots.rows; ++t) {
      Route& route = routes[token + t];
      const float* row = dots.row(t);
      if (sinks > 0) route.redundancy = std::max(route.redundancy, Largest(row, 0, sinks));
      const float best = Largest(row, sinks, count);
      route.redundancy = std::max(route.redundancy, best);
      if (two) {
        RouteToTwo(row + sinks, first_row + sinks, count - sinks, route);
      } else if (best > route.similarity) {
        route.similarity = best;
        route.row = first_row + (std::find(row + sinks, row + count, best) - row);
      }
    }
  }
}

// Writes key sums, normalized, to panels; `sums` becomes the normalized ones.
void NormalizeToPanels(MatrixView<const float> sums, const MemoryKeyNorm& norm, MatrixView<float> normalized,
                       float* panels) {
  NormalizeRuns(sums, sums.cols, norm.weight.data(), norm.bias.data(), 0, kLayerNormEpsilon, normalized);
  PackKeys(normalized, 0, DType::kF32, panels);
}

// Compares tokens begin..begin + count of a head with the rows that were there before.
void RouteToRowsImpl(const SlotUpdateHead& head, int64_t begin, int64_t count, Route* routes,
                     std::pmr::memory_resource* memory) {
  const SlotRows& rows = head.rows;
  const int64_t dim = rows.qk_dim;
  const MatrixView<const float> keys = head.tokens.keys.Rows(begin, count);
  // Readout keys are the normalized sums, but for rounding: where they are float32 they save doing it again.
  const bool fresh = rows.readout_dtype == DType::kF32;
  const WorkBuffer normalized(fresh ? 0 : kRowTile * dim, memory);
  const WorkBuffer panels(fresh ? 0 : kRowTile * dim, memory);
  for (int64_t tile = 0; tile < rows.count; tile += kRowTile) {
    const int64_t in_tile = std::min(kRowTile, rows.count - tile);
    const float* tile_panels = panels.data();
    if (fresh) {
      tile_panels = static_cast<const float*>(rows.readout_keys) + tile * dim;
    } else {
      NormalizeToPanels({rows.key_sums + tile * dim, in_tile, dim}, head.norm, {normalized.data(), in_tile, dim},
                        panels.data());
    }
    RouteTile(keys, tile_panels, tile, in_tile, head.options, routes);
  }
}

// Compares them with the rows that tokens become in this update.
void RouteToAppendedImpl(const SlotUpdateHead& head, const std::pmr::vector<bool>& appended, int64_t begin,
                         int64_t count, Route* routes, std::pmr::memory_resource* memory) {
  const int64_t dim = head.rows.qk_dim;
  const MatrixView<const float> keys = head.tokens.keys.Rows(begin, count);
  const bool gated = head.options.gate_appends && !head.tokens.key_gates.empty();
  const WorkBuffer sums(kRowTile * dim, memory);
  const WorkBuffer panels(kRowTile * dim, memory);
  int64_t first_row = head.rows.count, in_tile = 0;
  const auto route = [&] {
    const MatrixView<float> tile(sums.data(), in_tile, dim);
    NormalizeToPanels(tile, head.norm, tile, panels.data());
    RouteTile(keys, panels.data(), first_row, in_tile, head.options, routes);
    first_row += in_tile;
    in_tile = 0;
  };
  for (size_t t = 0; t < appended.size(); ++t) {
    if (!appended[t]) continue;
    const float gate = gated ? head.tokens.key_gates[t] : 1.0f;
    const float* const key = head.tokens.keys.row(static_cast<int64_t>(t));
    float* const sum = sums.data() + in_tile * dim;
    for (int64_t c = 0; c < dim; ++c) sum[c] = gate * key[c];
    if (++in_tile == kRowTile) route();
  }
  if (in_tile > 0) route();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvm {

HWY_EXPORT(RouteToRowsImpl);
HWY_EXPORT(RouteToAppendedImpl);

namespace {

// Tokens of one head that one thread compares at a time.
struct TokenRange {
  int64_t head = 0;
  int64_t begin = 0;
  int64_t count = 0;
};

// Whole heads where these are enough to keep all threads busy, else parts of them; no part of the result.
std::pmr::vector<TokenRange> Ranges(absl::Span<const SlotUpdateHead> heads, const ThreadPool& pool) {
  const int64_t wanted = pool.num_threads() == 1 ? 1 : int64_t{2} * pool.num_threads();
  const int64_t num_heads = static_cast<int64_t>(heads.size());
  std::pmr::vector<TokenRange> ranges(pool.memory());
  for (int64_t h = 0; h < num_heads; ++h) {
    const int64_t n = heads[h].tokens.keys.rows;
    const int64_t parts = std::max<int64_t>(1, std::min((wanted + num_heads - 1) / num_heads, n / kTokenTile));
    const int64_t part = ((n + parts - 1) / parts + kTokenTile - 1) / kTokenTile * kTokenTile;
    for (int64_t begin = 0; begin < n; begin += part) ranges.push_back({h, begin, std::min(part, n - begin)});
  }
  return ranges;
}

// Nothing is to be chosen from when every token becomes a row.
bool AllAppend(const SlotUpdateHead& head) {
  return head.options.num_appends == head.tokens.keys.rows && head.options.append_below == kInfinity;
}

// Which of n tokens become rows: of the `count` least redundant, the earlier of equals, those below `bound`.
void ChooseLeastRedundant(absl::Span<const Route> routes, int64_t count, float bound, std::pmr::vector<bool>& chosen,
                          std::pmr::memory_resource* memory) {
  std::pmr::vector<int64_t> order(routes.size(), memory);
  std::iota(order.begin(), order.end(), int64_t{0});
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const float of_a = routes[a].redundancy, of_b = routes[b].redundancy;
    return of_a != of_b ? of_a < of_b : a < b;
  });
  for (int64_t i = 0; i < count; ++i) chosen[order[i]] = bound == kInfinity || routes[order[i]].redundancy < bound;
}

void CheckHead(const SlotUpdateHead& head, CallSite site) {
  CheckSlotTokens(head.tokens, head.norm, head.rows, site);
  CheckAtLeast(head.options.num_sinks, 0, "options.num_sinks", site);
  CheckBetween(head.options.num_appends, 0, head.tokens.keys.rows, "options.num_appends", site);
  CheckAtMost(head.rows.count + head.options.num_appends, head.rows.capacity, "rows.count + options.num_appends", site);
}

}  // namespace

std::pmr::vector<SlotRoutes> RouteTokens(absl::Span<const SlotUpdateHead> heads, std::pmr::memory_resource* memory,
                                         ThreadPool& pool) {
  const CallSite site = CallSite::Here();
  const int64_t num_heads = static_cast<int64_t>(heads.size());
  std::pmr::vector<int64_t> first_token(num_heads + 1, 0, pool.memory());
  std::pmr::vector<SlotRoutes> result(memory);
  result.reserve(heads.size());
  for (int64_t h = 0; h < num_heads; ++h) {
    CheckHead(heads[h], site);
    const int64_t n = heads[h].tokens.keys.rows;
    result.emplace_back(n, memory);
    first_token[h + 1] = first_token[h] + n;
  }
  std::pmr::vector<Route> routes(first_token[num_heads], pool.memory());
  const std::pmr::vector<TokenRange> ranges = Ranges(heads, pool);
  const int64_t num_ranges = static_cast<int64_t>(ranges.size());

  const auto route_to_rows = HWY_DYNAMIC_DISPATCH(RouteToRowsImpl);
  pool.ParallelFor(num_ranges, [&](int64_t i) {
    const TokenRange& range = ranges[i];
    const SlotUpdateHead& head = heads[range.head];
    Route* const of_range = routes.data() + first_token[range.head] + range.begin;
    // Where a token goes that is like no row.
    for (int64_t t = 0; t < range.count; ++t) of_range[t].row = head.options.num_sinks;
    if (!AllAppend(head)) route_to_rows(head, range.begin, range.count, of_range, pool.memory());
  });
  pool.ParallelFor(num_heads, [&](int64_t h) {
    ChooseLeastRedundant({routes.data() + first_token[h], static_cast<size_t>(heads[h].tokens.keys.rows)},
                         heads[h].options.num_appends, heads[h].options.append_below, result[h].appended,
                         pool.memory());
  });
  const auto route_to_appended = HWY_DYNAMIC_DISPATCH(RouteToAppendedImpl);
  pool.ParallelFor(num_ranges, [&](int64_t i) {
    const TokenRange& range = ranges[i];
    const SlotUpdateHead& head = heads[range.head];
    Route* const of_range = routes.data() + first_token[range.head] + range.begin;
    if (AllAppend(head) || head.options.num_appends == 0) return;
    route_to_appended(head, result[range.head].appended, range.begin, range.count, of_range, pool.memory());
  });

  for (int64_t h = 0; h < num_heads; ++h) {
    SlotRoutes& of_head = result[h];
    int64_t next_appended = heads[h].rows.count;
    bool merges = false;
    for (size_t t = 0; t < of_head.appended.size(); ++t) {
      const Route& route = routes[first_token[h] + static_cast<int64_t>(t)];
      const bool appended = of_head.appended[t];
      merges = merges || !appended;
      of_head.row_of_token[t] = appended ? next_appended++ : route.row;
      of_head.second_row[t] = appended ? -1 : route.second_row;
    }
    if (merges) CheckAtLeast(next_appended, heads[h].options.num_sinks + 1, "rows after step 1", site);
  }
  return result;
}

}  // namespace kvm
#endif  // HWY_ONCE
