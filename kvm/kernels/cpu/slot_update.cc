#include "kvm/kernels/cpu/slot_update.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>

#include "kvm/kernels/bfloat16.h"
#include "kvm/kernels/cpu/norms.h"
#include "kvm/kernels/key_value.h"
#include "kvm/kernels/work_buffer.h"

// Highway includes this very file once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvm/kernels/cpu/slot_update.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/highway.h"
#include "kvm/kernels/cpu/panel_dots-inl.h"

// Once, for all instruction sets.
#ifndef KVM_KERNELS_CPU_SLOT_UPDATE_SHARED_
#define KVM_KERNELS_CPU_SLOT_UPDATE_SHARED_
namespace kvm {
namespace {

// Rows and tokens that are multiplied with each other at a time; no part of the result.
constexpr int64_t kRowTile = 64;
constexpr int64_t kTokenTile = 36;

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// The best rows found so far for one token.
struct Route {
  float redundancy = kLowest;         // over all rows
  float similarity = kLowest;         // over rows that may take tokens
  int64_t row = 0;                    // the lowest of those that reach `similarity`
  float second_similarity = kLowest;  // over rows that may take tokens, without `row`
  int64_t second_row = -1;            // the lowest of those that reach it; −1 for none
};

// Moves a route on over rows first_row.., whose dot products with the token are dots[0..count): best and second best.
void RouteToTwo(const float* dots, int64_t first_row, int64_t count, Route& route) {
  for (int64_t i = 0; i < count; ++i) {
    if (dots[i] > route.similarity) {
      route.second_similarity = route.similarity;
      route.second_row = route.similarity > kLowest ? route.row : -1;
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
#endif  // KVM_KERNELS_CPU_SLOT_UPDATE_SHARED_

HWY_BEFORE_NAMESPACE();
namespace kvm {
namespace HWY_NAMESPACE {
namespace {

// The largest of dots[begin..end).
float Largest(const float* dots, int64_t begin, int64_t end) {
  const PanelTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto largest = hn::Set(d, kLowest);
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) largest = hn::Max(largest, hn::LoadU(d, dots + i));
  float result = hn::GetLane(hn::MaxOfLanes(d, largest));
  for (; i < end; ++i) result = std::max(result, dots[i]);
  return result;
}

// Compares all keys with the `count` <= kRowTile normalized rows in `panels`, which are rows first_row.. of the state.
// Second best rows are looked for when `two`.
void RouteTileImpl(MatrixView<const float> keys, const float* panels, int64_t first_row, int64_t count,
                   int64_t num_sinks, bool two, Route* routes) {
  HWY_ALIGN float memory[kTokenTile * kRowTile];
  const int64_t num_panels = (count + kKeyPanel - 1) / kKeyPanel;
  const int64_t sinks = std::min(std::max<int64_t>(num_sinks - first_row, 0), count);
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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvm {

HWY_EXPORT(RouteTileImpl);

namespace {

float Gate(absl::Span<const float> gates, int64_t token) { return gates.empty() ? 1.0f : gates[token]; }

float Norm(const float* x, int64_t n) {
  double squares = 0;
  for (int64_t c = 0; c < n; ++c) squares += static_cast<double>(x[c]) * x[c];
  return static_cast<float>(std::sqrt(squares));
}

void Store(float x, float* to) { *to = x; }
void Store(float x, BFloat16* to) { *to = ToBFloat16(x); }

// Compares all keys with rows first..last of the state, as their sums stand now.
void RouteRows(MatrixView<const float> keys, const SlotRows& rows, int64_t first, int64_t last,
               const SlotUpdateOptions& options, const MemoryKeyNorm& norm, std::pmr::vector<Route>& routes) {
  const bool two = options.second_merge != 0;
  const int64_t dim = rows.qk_dim;
  std::pmr::memory_resource* const memory = routes.get_allocator().resource();
  const WorkBuffer normalized(kKeyPanel * dim, memory);
  const WorkBuffer panels(kRowTile * dim, memory);
  for (int64_t tile = first; tile < last; tile += kRowTile) {
    const int64_t count = std::min(kRowTile, last - tile);
    for (int64_t i = 0; i < count; i += kKeyPanel) {
      const MatrixView<float> some(normalized.data(), std::min(kKeyPanel, count - i), dim);
      LayerNorm(MatrixView<const float>(rows.key_sums + (tile + i) * dim, some.rows, dim), norm.weight, norm.bias,
                kLayerNormEpsilon, some);
      float* panel = panels.data() + i * dim;
      for (int64_t r = 0; r < some.rows; ++r) {
        for (int64_t c = 0; c < dim; ++c) panel[c * kKeyPanel + r] = some.row(r)[c];
      }
    }
    HWY_DYNAMIC_DISPATCH(RouteTileImpl)(keys, panels.data(), tile, count, options.num_sinks, two, routes.data());
  }
}

// Which tokens become rows: of the `count` least redundant, the earlier of equals, those below `bound`.
std::pmr::vector<bool> LeastRedundant(const std::pmr::vector<Route>& routes, int64_t count, float bound) {
  std::pmr::memory_resource* const memory = routes.get_allocator().resource();
  std::pmr::vector<int64_t> order(routes.size(), memory);
  std::iota(order.begin(), order.end(), int64_t{0});
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const float of_a = routes[a].redundancy, of_b = routes[b].redundancy;
    return of_a != of_b ? of_a < of_b : a < b;
  });
  std::pmr::vector<bool> chosen(routes.size(), false, memory);
  for (int64_t i = 0; i < count; ++i) chosen[order[i]] = bound == -kLowest || routes[order[i]].redundancy < bound;
  return chosen;
}

// Makes `token` the row behind the present ones.
void AppendRow(const SlotTokens& tokens, int64_t token, bool gated, ValueReadout readout, SlotRows& rows) {
  const int64_t row = rows.count++;
  const float key_gate = gated ? Gate(tokens.key_gates, token) : 1.0f;
  const float value_gate = gated ? Gate(tokens.value_gates, token) : 1.0f;
  float* key_sum = rows.key_sums + row * rows.qk_dim;
  float* value_sum = rows.value_sums + row * rows.v_dim;
  for (int64_t c = 0; c < rows.qk_dim; ++c) key_sum[c] = key_gate * tokens.keys.row(token)[c];
  for (int64_t c = 0; c < rows.v_dim; ++c) value_sum[c] = value_gate * tokens.values.row(token)[c];
  rows.radii[row] = readout == ValueReadout::kRadius ? Norm(value_sum, rows.v_dim) : 1.0f;
}

// Multiplies a row's sums.
void Decay(float decay, int64_t row, SlotRows& rows) {
  float* key_sum = rows.key_sums + row * rows.qk_dim;
  float* value_sum = rows.value_sums + row * rows.v_dim;
  for (int64_t c = 0; c < rows.qk_dim; ++c) key_sum[c] *= decay;
  for (int64_t c = 0; c < rows.v_dim; ++c) value_sum[c] *= decay;
}

// Adds `token`, times `weight`, to a row.
void MergeIntoRow(const SlotTokens& tokens, int64_t token, float weight, int64_t row, SlotRows& rows) {
  const float key_gate = weight * Gate(tokens.key_gates, token);
  const float value_gate = weight * Gate(tokens.value_gates, token);
  float* key_sum = rows.key_sums + row * rows.qk_dim;
  float* value_sum = rows.value_sums + row * rows.v_dim;
  for (int64_t c = 0; c < rows.qk_dim; ++c) key_sum[c] += key_gate * tokens.keys.row(token)[c];
  for (int64_t c = 0; c < rows.v_dim; ++c) value_sum[c] += value_gate * tokens.values.row(token)[c];
}

template <typename Element>
void RefreshKeyAs(const MemoryKeyNorm& norm, int64_t row, SlotRows& rows, std::pmr::vector<float>& normalized) {
  const int64_t dim = rows.qk_dim;
  LayerNorm(MatrixView<const float>(rows.key_sums + row * dim, 1, dim), norm.weight, norm.bias, kLayerNormEpsilon,
            MatrixView<float>(normalized.data(), 1, dim));
  Element* keys = static_cast<Element*>(rows.readout_keys);
  for (int64_t c = 0; c < dim; ++c) Store(normalized[c], keys + KeyPanelOffset(row, c, dim));
}

// Writes a row's value as it is read to to[0..v_dim).
template <typename Element>
void ReadValue(ValueReadout readout, int64_t row, const SlotRows& rows, Element* to) {
  const float* sum = rows.value_sums + row * rows.v_dim;
  const float divisor = readout == ValueReadout::kRadius ? std::max(Norm(sum, rows.v_dim), 1e-12f) : rows.radii[row];
  const float factor = readout == ValueReadout::kRadius ? rows.radii[row] : 1.0f;
  for (int64_t c = 0; c < rows.v_dim; ++c) Store(sum[c] / divisor * factor, to + c);
}

// Writes x as integers to[0], to[stride], ...; returns their scale.
float StoreIntegers(absl::Span<const float> x, int64_t stride, int8_t* to) {
  float largest = 0;
  bool finite = true;
  for (const float e : x) {
    finite = finite && std::isfinite(e);
    largest = std::max(largest, std::abs(e));
  }
  const float scale = finite ? largest / 127 : std::numeric_limits<float>::quiet_NaN();
  for (size_t c = 0; c < x.size(); ++c) {
    // A scale of zero: all numbers are, or would be beneath what float32 tells from it.
    const float steps = scale > 0 ? std::nearbyint(x[c] / scale) : 0.0f;
    to[static_cast<int64_t>(c) * stride] = static_cast<int8_t>(std::min(std::max(steps, -127.0f), 127.0f));
  }
  return scale;
}

void RefreshIntegers(const MemoryKeyNorm& norm, ValueReadout readout, bool touched, int64_t row, SlotRows& rows,
                     std::pmr::vector<float>& normalized) {
  if (touched) {
    const int64_t dim = rows.qk_dim;
    LayerNorm(MatrixView<const float>(rows.key_sums + row * dim, 1, dim), norm.weight, norm.bias, kLayerNormEpsilon,
              MatrixView<float>(normalized.data(), 1, dim));
    int8_t* const key = static_cast<int8_t*>(rows.readout_keys) + KeyPanelOffset(row, 0, dim);
    rows.readout_key_scales[row] = StoreIntegers(normalized, kKeyPanel, key);
  }
  std::pmr::vector<float> value(rows.v_dim, normalized.get_allocator());
  ReadValue(readout, row, rows, value.data());
  int8_t* const integers = static_cast<int8_t*>(rows.readout_values) + row * rows.v_dim;
  rows.readout_value_scales[row] = StoreIntegers(value, 1, integers);
}

// Brings the readout of a row up to date: of its value always, of its key when `touched`.
void RefreshRow(const MemoryKeyNorm& norm, ValueReadout readout, bool touched, int64_t row, SlotRows& rows,
                std::pmr::vector<float>& normalized) {
  if (rows.readout_dtype == DType::kBF16) {
    if (touched) RefreshKeyAs<BFloat16>(norm, row, rows, normalized);
    ReadValue(readout, row, rows, static_cast<BFloat16*>(rows.readout_values) + row * rows.v_dim);
  } else if (rows.readout_dtype == DType::kI8) {
    RefreshIntegers(norm, readout, touched, row, rows, normalized);
  } else {
    if (touched) RefreshKeyAs<float>(norm, row, rows, normalized);
    ReadValue(readout, row, rows, static_cast<float*>(rows.readout_values) + row * rows.v_dim);
  }
}

}  // namespace

void MemoryKeys(MatrixView<const float> keys, int64_t zeroed, const MemoryKeyNorm& norm, MatrixView<float> out) {
  for (int64_t r = 0; r < keys.rows; ++r) {
    std::fill_n(out.row(r), zeroed, 0.0f);
    if (out.row(r) != keys.row(r)) std::copy(keys.row(r) + zeroed, keys.row(r) + keys.cols, out.row(r) + zeroed);
  }
  LayerNorm(out, norm.weight, norm.bias, kLayerNormEpsilon, out);
}

void FoundRows(const SlotTokens& tokens, bool gated, const MemoryKeyNorm& norm, ValueReadout readout, SlotRows& rows,
               std::pmr::memory_resource* memory) {
  assert(rows.count + tokens.keys.rows <= rows.capacity);
  std::pmr::vector<float> normalized(rows.qk_dim, memory);
  for (int64_t t = 0; t < tokens.keys.rows; ++t) {
    AppendRow(tokens, t, gated, readout, rows);
    const int64_t row = rows.count - 1;
    if (readout == ValueReadout::kRadius) rows.radii[row] = Norm(tokens.values.row(t), rows.v_dim);
    RefreshRow(norm, readout, /*touched=*/true, row, rows, normalized);
  }
}

std::pmr::vector<int64_t> UpdateRows(const SlotTokens& tokens, const SlotUpdateOptions& options,
                                     const MemoryKeyNorm& norm, SlotRows& rows, std::pmr::memory_resource* memory) {
  const int64_t n = tokens.keys.rows;
  const int64_t old_count = rows.count;
  assert(options.num_appends <= n && old_count + options.num_appends <= rows.capacity);

  Route nowhere;
  nowhere.row = options.num_sinks;  // where a token with NaN in it goes
  std::pmr::vector<Route> routes(n, nowhere, memory);
  // Nothing to choose from when every token becomes a row.
  const bool all_append = n == options.num_appends && options.append_below == -kLowest;
  if (!all_append) RouteRows(tokens.keys, rows, 0, old_count, options, norm, routes);
  const std::pmr::vector<bool> appended = LeastRedundant(routes, options.num_appends, options.append_below);
  for (int64_t t = 0; t < n; ++t) {
    if (appended[t]) AppendRow(tokens, t, options.gate_appends, options.readout, rows);
  }
  assert(rows.count == old_count + n || rows.count > options.num_sinks);
  if (!all_append) RouteRows(tokens.keys, rows, old_count, rows.count, options, norm, routes);
  std::pmr::vector<int64_t> picks(n, memory);
  int64_t next_appended = old_count;
  for (int64_t t = 0; t < n; ++t) picks[t] = appended[t] ? next_appended++ : routes[t].row;

  std::pmr::vector<bool> touched(rows.count, false, memory);
  const auto add = [&](int64_t token, float weight, int64_t row) {
    if (!touched[row] && row < old_count && options.merge_decay != 1) Decay(options.merge_decay, row, rows);
    touched[row] = true;
    MergeIntoRow(tokens, token, weight, row, rows);
  };
  for (int64_t t = 0; t < n; ++t) {
    if (appended[t]) {
      touched[picks[t]] = true;
      continue;
    }
    add(t, 1, picks[t]);
    if (routes[t].second_row >= 0) add(t, options.second_merge, routes[t].second_row);
  }
  const bool counts = options.readout == ValueReadout::kMean;
  std::pmr::vector<float> normalized(rows.qk_dim, memory);
  for (int64_t row = 0; row < rows.count; ++row) {
    if (counts) rows.radii[row] += 1.0f;
    if (touched[row] || counts) RefreshRow(norm, options.readout, touched[row], row, rows, normalized);
  }
  return picks;
}

}  // namespace kvm
#endif  // HWY_ONCE
