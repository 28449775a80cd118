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
#include "kvm/kernels/cpu/keep_nan-inl.h"
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

// The largest of the numbers in dots[begin..end), NaN left aside; −inf where there is none.
float Largest(const float* dots, int64_t begin, int64_t end) {
  const PanelTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto largest = hn::Set(d, kLowest);
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) largest = MaxOfNumbers(largest, hn::LoadU(d, dots + i));
  float result = hn::GetLane(hn::MaxOfLanes(d, largest));
  for (; i < end; ++i) result = std::max(result, dots[i]);
  return result;
}

// Σ x², in float64.
double SumOfSquaresImpl(const float* HWY_RESTRICT x, int64_t n) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> d32;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = sum0;
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto x0 = hn::PromoteTo(d, hn::LoadU(d32, x + i)), x1 = hn::PromoteTo(d, hn::LoadU(d32, x + i + lanes));
    sum0 = hn::MulAdd(x0, x0, sum0);
    sum1 = hn::MulAdd(x1, x1, sum1);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

// y += scale·x.
void AddScaledImpl(float scale, const float* HWY_RESTRICT x, int64_t n, float* HWY_RESTRICT y) {
  const PanelTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, y + i), hn::Mul(hn::Set(d, scale), hn::LoadU(d, x + i))), d, y + i);
  }
  for (; i < n; ++i) y[i] += scale * x[i];
}

// out = x / divisor · factor.
void RescaleImpl(const float* HWY_RESTRICT x, float divisor, float factor, int64_t n, float* HWY_RESTRICT out) {
  const PanelTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto quotient = hn::Div(hn::LoadU(d, x + i), hn::Set(d, divisor));
    hn::StoreU(hn::Mul(quotient, hn::Set(d, factor)), d, out + i);
  }
  for (; i < n; ++i) out[i] = x[i] / divisor * factor;
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

HWY_EXPORT(SumOfSquaresImpl);
HWY_EXPORT(AddScaledImpl);
HWY_EXPORT(RescaleImpl);
HWY_EXPORT(RouteTileImpl);

namespace {

float Gate(absl::Span<const float> gates, int64_t token) { return gates.empty() ? 1.0f : gates[token]; }

float Norm(const float* x, int64_t n) {
  return static_cast<float>(std::sqrt(HWY_DYNAMIC_DISPATCH(SumOfSquaresImpl)(x, n)));
}

void Store(float x, float* to) { *to = x; }
void Store(float x, BFloat16* to) { *to = ToBFloat16(x); }

// Writes the normalized key sums of rows first..first+count to panels.
void NormalizeToPanels(const SlotRows& rows, int64_t first, int64_t count, const MemoryKeyNorm& norm,
                       const WorkBuffer& normalized, float* panels) {
  const int64_t dim = rows.qk_dim;
  for (int64_t i = 0; i < count; i += kKeyPanel) {
    const MatrixView<float> some(normalized.data(), std::min(kKeyPanel, count - i), dim);
    LayerNorm(MatrixView<const float>(rows.key_sums + (first + i) * dim, some.rows, dim), norm.weight, norm.bias,
              kLayerNormEpsilon, some);
    float* panel = panels + i * dim;
    for (int64_t r = 0; r < some.rows; ++r) {
      for (int64_t c = 0; c < dim; ++c) panel[c * kKeyPanel + r] = some.row(r)[c];
    }
  }
}

// Compares all keys with rows first..last of the state, as their sums stand now. `readout_is_fresh`: these rows'
// readout is up to date, and `first` begins a panel; where it is float32 it saves normalizing the sums.
void RouteRows(MatrixView<const float> keys, const SlotRows& rows, int64_t first, int64_t last, bool readout_is_fresh,
               const SlotUpdateOptions& options, const MemoryKeyNorm& norm, std::pmr::vector<Route>& routes) {
  const bool two = options.second_merge != 0;
  const int64_t dim = rows.qk_dim;
  std::pmr::memory_resource* const memory = routes.get_allocator().resource();
  const WorkBuffer normalized(kKeyPanel * dim, memory);
  const WorkBuffer panels(kRowTile * dim, memory);
  for (int64_t tile = first; tile < last; tile += kRowTile) {
    const int64_t count = std::min(kRowTile, last - tile);
    const float* tile_panels = panels.data();
    if (readout_is_fresh && rows.readout_dtype == DType::kF32) {
      tile_panels = static_cast<const float*>(rows.readout_keys) + tile * dim;
    } else {
      NormalizeToPanels(rows, tile, count, norm, normalized, panels.data());
    }
    HWY_DYNAMIC_DISPATCH(RouteTileImpl)(keys, tile_panels, tile, count, options.num_sinks, two, routes.data());
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
  const auto add = HWY_DYNAMIC_DISPATCH(AddScaledImpl);
  add(key_gate, tokens.keys.row(token), rows.qk_dim, rows.key_sums + row * rows.qk_dim);
  add(value_gate, tokens.values.row(token), rows.v_dim, rows.value_sums + row * rows.v_dim);
}

// Writes a row's value as it is read to `to` [v_dim].
void ReadValue(ValueReadout readout, int64_t row, const SlotRows& rows, float* to) {
  const float* sum = rows.value_sums + row * rows.v_dim;
  const bool radius = readout == ValueReadout::kRadius;
  const float divisor = radius ? std::max(Norm(sum, rows.v_dim), 1e-12f) : rows.radii[row];
  HWY_DYNAMIC_DISPATCH(RescaleImpl)(sum, divisor, radius ? rows.radii[row] : 1.0f, rows.v_dim, to);
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

// Writes x to to[0], to[stride], ...
template <typename Element>
void StoreFloats(absl::Span<const float> x, int64_t stride, Element* to) {
  for (size_t c = 0; c < x.size(); ++c) Store(x[c], to + static_cast<int64_t>(c) * stride);
}

// Writes x as `dtype` to readout[offset], readout[offset + stride], ...; returns the scale of integers, else 1.
float StoreReadout(absl::Span<const float> x, DType dtype, int64_t offset, int64_t stride, void* readout) {
  if (dtype == DType::kI8) return StoreIntegers(x, stride, static_cast<int8_t*>(readout) + offset);
  if (dtype == DType::kBF16) {
    StoreFloats(x, stride, static_cast<BFloat16*>(readout) + offset);
  } else {
    StoreFloats(x, stride, static_cast<float*>(readout) + offset);
  }
  return 1;
}

// A key and a value of one row on their way to the readout.
struct ReadoutRow {
  ReadoutRow(const SlotRows& rows, std::pmr::memory_resource* memory)
      : key(rows.qk_dim, memory), value(rows.v_dim, memory) {}
  std::pmr::vector<float> key;
  std::pmr::vector<float> value;
};

// Brings the readout of a row up to date: of its value always, of its key when `touched`.
void RefreshRow(const MemoryKeyNorm& norm, ValueReadout readout, bool touched, int64_t row, SlotRows& rows,
                ReadoutRow& memory) {
  const DType dtype = rows.readout_dtype;
  if (touched) {
    const int64_t dim = rows.qk_dim;
    LayerNorm(MatrixView<const float>(rows.key_sums + row * dim, 1, dim), norm.weight, norm.bias, kLayerNormEpsilon,
              MatrixView<float>(memory.key.data(), 1, dim));
    const float scale = StoreReadout(memory.key, dtype, KeyPanelOffset(row, 0, dim), kKeyPanel, rows.readout_keys);
    if (dtype == DType::kI8) rows.readout_key_scales[row] = scale;
  }
  ReadValue(readout, row, rows, memory.value.data());
  const float scale = StoreReadout(memory.value, dtype, row * rows.v_dim, 1, rows.readout_values);
  if (dtype == DType::kI8) rows.readout_value_scales[row] = scale;
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
  ReadoutRow readout_row(rows, memory);
  for (int64_t t = 0; t < tokens.keys.rows; ++t) {
    AppendRow(tokens, t, gated, readout, rows);
    const int64_t row = rows.count - 1;
    if (readout == ValueReadout::kRadius) rows.radii[row] = Norm(tokens.values.row(t), rows.v_dim);
    RefreshRow(norm, readout, /*touched=*/true, row, rows, readout_row);
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
  if (!all_append) RouteRows(tokens.keys, rows, 0, old_count, /*readout_is_fresh=*/true, options, norm, routes);
  const std::pmr::vector<bool> appended = LeastRedundant(routes, options.num_appends, options.append_below);
  for (int64_t t = 0; t < n; ++t) {
    if (appended[t]) AppendRow(tokens, t, options.gate_appends, options.readout, rows);
  }
  assert(rows.count == old_count + n || rows.count > options.num_sinks);
  if (!all_append)
    RouteRows(tokens.keys, rows, old_count, rows.count, /*readout_is_fresh=*/false, options, norm, routes);
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
  ReadoutRow readout_row(rows, memory);
  for (int64_t row = 0; row < rows.count; ++row) {
    if (counts) rows.radii[row] += 1.0f;
    if (touched[row] || counts) RefreshRow(norm, options.readout, touched[row], row, rows, readout_row);
  }
  return picks;
}

void RefreshReadout(const MemoryKeyNorm& norm, ValueReadout readout, SlotRows& rows,
                    std::pmr::memory_resource* memory) {
  ReadoutRow readout_row(rows, memory);
  for (int64_t row = 0; row < rows.count; ++row) {
    RefreshRow(norm, readout, /*touched=*/true, row, rows, readout_row);
  }
}

}  // namespace kvm
#endif  // HWY_ONCE
