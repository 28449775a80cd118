#include "kvm/kernels/cpu/slot_update.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory_resource>
#include <vector>

#include "kvm/base/check.h"
#include "kvm/kernels/bfloat16.h"
#include "kvm/kernels/check_view.h"
#include "kvm/kernels/cpu/pointwise/norms.h"
#include "kvm/kernels/cpu/slot_checks.h"
#include "kvm/kernels/key_value.h"

// Highway includes this very file once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvm/kernels/cpu/slot_update.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/highway.h"
#include "kvm/kernels/cpu/panel_dots-inl.h"
#include "kvm/kernels/cpu/pointwise/norms-inl.h"

// Once, for all instruction sets.
#ifndef KVM_KERNELS_CPU_SLOT_UPDATE_SHARED_
#define KVM_KERNELS_CPU_SLOT_UPDATE_SHARED_
namespace kvm {
namespace {

float Gate(absl::Span<const float> gates, int64_t token) { return gates.empty() ? 1.0f : gates[token]; }

void Store(float x, float* to) { *to = x; }
void Store(float x, BFloat16* to) { *to = ToBFloat16(x); }

// Multiplies a row's sums.
void Decay(float decay, int64_t row, SlotRows& rows) {
  float* key_sum = rows.key_sums + row * rows.qk_dim;
  float* value_sum = rows.value_sums + row * rows.v_dim;
  for (int64_t c = 0; c < rows.qk_dim; ++c) key_sum[c] *= decay;
  for (int64_t c = 0; c < rows.v_dim; ++c) value_sum[c] *= decay;
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

}  // namespace
}  // namespace kvm
#endif  // KVM_KERNELS_CPU_SLOT_UPDATE_SHARED_

HWY_BEFORE_NAMESPACE();
namespace kvm {
namespace HWY_NAMESPACE {
namespace {

// Σ x², in float64.
double SumOfSquares(const float* HWY_RESTRICT x, int64_t n) {
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

float Norm(const float* x, int64_t n) { return static_cast<float>(std::sqrt(SumOfSquares(x, n))); }

// y += scale·x.
void AddScaled(float scale, const float* HWY_RESTRICT x, int64_t n, float* HWY_RESTRICT y) {
  const PanelTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, y + i), hn::Mul(hn::Set(d, scale), hn::LoadU(d, x + i))), d, y + i);
  }
  for (; i < n; ++i) y[i] += scale * x[i];
}

// out = x / divisor · factor.
void Rescale(const float* HWY_RESTRICT x, float divisor, float factor, int64_t n, float* HWY_RESTRICT out) {
  const PanelTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto quotient = hn::Div(hn::LoadU(d, x + i), hn::Set(d, divisor));
    hn::StoreU(hn::Mul(quotient, hn::Set(d, factor)), d, out + i);
  }
  for (; i < n; ++i) out[i] = x[i] / divisor * factor;
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

// Adds `token`, times `weight`, to a row.
void MergeIntoRow(const SlotTokens& tokens, int64_t token, float weight, int64_t row, SlotRows& rows) {
  const float key_gate = weight * Gate(tokens.key_gates, token);
  const float value_gate = weight * Gate(tokens.value_gates, token);
  AddScaled(key_gate, tokens.keys.row(token), rows.qk_dim, rows.key_sums + row * rows.qk_dim);
  AddScaled(value_gate, tokens.values.row(token), rows.v_dim, rows.value_sums + row * rows.v_dim);
}

// Writes a row's value as it is read to `to` [v_dim].
void ReadValue(ValueReadout readout, int64_t row, const SlotRows& rows, float* to) {
  const float* sum = rows.value_sums + row * rows.v_dim;
  const bool radius = readout == ValueReadout::kRadius;
  const float divisor = radius ? std::max(Norm(sum, rows.v_dim), 1e-12f) : rows.radii[row];
  Rescale(sum, divisor, radius ? rows.radii[row] : 1.0f, rows.v_dim, to);
}

// Brings the readout of a row up to date: of its value always, of its key when `touched`.
void RefreshRow(const MemoryKeyNorm& norm, ValueReadout readout, bool touched, int64_t row, SlotRows& rows,
                ReadoutRow& memory) {
  const DType dtype = rows.readout_dtype;
  if (touched) {
    const int64_t dim = rows.qk_dim;
    NormalizeRuns({rows.key_sums + row * dim, 1, dim}, dim, norm.weight.data(), norm.bias.data(), 0, kLayerNormEpsilon,
                  {memory.key.data(), 1, dim});
    const float scale = StoreReadout(memory.key, dtype, KeyPanelOffset(row, 0, dim), kKeyPanel, rows.readout_keys);
    if (dtype == DType::kI8) rows.readout_key_scales[row] = scale;
  }
  ReadValue(readout, row, rows, memory.value.data());
  const float scale = StoreReadout(memory.value, dtype, row * rows.v_dim, 1, rows.readout_values);
  if (dtype == DType::kI8) rows.readout_value_scales[row] = scale;
}

void SeedRowsImpl(const SlotTokens& tokens, bool gated, const MemoryKeyNorm& norm, ValueReadout readout, SlotRows& rows,
                  std::pmr::memory_resource* memory) {
  ReadoutRow readout_row(rows, memory);
  for (int64_t t = 0; t < tokens.keys.rows; ++t) {
    AppendRow(tokens, t, gated, readout, rows);
    const int64_t row = rows.count - 1;
    if (readout == ValueReadout::kRadius) rows.radii[row] = Norm(tokens.values.row(t), rows.v_dim);
    RefreshRow(norm, readout, /*touched=*/true, row, rows, readout_row);
  }
}

void ApplyHeadImpl(SlotUpdateHead& head, const SlotRoutes& routes, std::pmr::memory_resource* memory) {
  const SlotTokens& tokens = head.tokens;
  const SlotUpdateOptions& options = head.options;
  SlotRows& rows = head.rows;
  const int64_t n = tokens.keys.rows;
  const int64_t old_count = rows.count;
  for (int64_t t = 0; t < n; ++t) {
    if (routes.appended[t]) AppendRow(tokens, t, options.gate_appends, options.readout, rows);
  }
  std::pmr::vector<bool> touched(rows.count, false, memory);
  const auto add = [&](int64_t token, float weight, int64_t row) {
    if (!touched[row] && row < old_count && options.merge_decay != 1) Decay(options.merge_decay, row, rows);
    touched[row] = true;
    MergeIntoRow(tokens, token, weight, row, rows);
  };
  for (int64_t t = 0; t < n; ++t) {
    const int64_t row = routes.row_of_token[t];
    if (routes.appended[t]) {
      touched[row] = true;
      continue;
    }
    add(t, 1, row);
    if (routes.second_row[t] >= 0) add(t, options.second_merge, routes.second_row[t]);
  }
  const bool counts = options.readout == ValueReadout::kMean;
  ReadoutRow readout_row(rows, memory);
  for (int64_t row = 0; row < rows.count; ++row) {
    if (counts) rows.radii[row] += 1.0f;
    if (touched[row] || counts) RefreshRow(head.norm, options.readout, touched[row], row, rows, readout_row);
  }
}

void RefreshReadoutImpl(const MemoryKeyNorm& norm, ValueReadout readout, SlotRows& rows,
                        std::pmr::memory_resource* memory) {
  ReadoutRow readout_row(rows, memory);
  for (int64_t row = 0; row < rows.count; ++row) {
    RefreshRow(norm, readout, /*touched=*/true, row, rows, readout_row);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvm {

HWY_EXPORT(SeedRowsImpl);
HWY_EXPORT(ApplyHeadImpl);
HWY_EXPORT(RefreshReadoutImpl);

namespace {

void CheckRoutes(const SlotUpdateHead& head, const SlotRoutes& routes, CallSite site) {
  CheckSlotTokens(head.tokens, head.norm, head.rows, site);
  const size_t n = static_cast<size_t>(head.tokens.keys.rows);
  CheckEq(routes.row_of_token.size(), n, "routes.row_of_token.size()", site);
  CheckEq(routes.second_row.size(), n, "routes.second_row.size()", site);
  CheckEq(routes.appended.size(), n, "routes.appended.size()", site);
  const int64_t num_appends = std::count(routes.appended.begin(), routes.appended.end(), true);
  const int64_t count = head.rows.count + num_appends;
  CheckAtMost(count, head.rows.capacity, "rows.count and the tokens that are appended", site);
  int64_t next_appended = head.rows.count;
  bool in_order = true, in_range = true;
  for (size_t t = 0; t < n; ++t) {
    const int64_t row = routes.row_of_token[t];
    if (routes.appended[t]) in_order = in_order && row == next_appended++;
    in_range = in_range && row >= 0 && row < count && routes.second_row[t] >= -1 && routes.second_row[t] < count;
  }
  Check(in_order, "appended tokens to become the rows behind the present ones, in token order", site);
  Check(in_range, "routes to rows that there are", site);
}

}  // namespace

void MemoryKeys(MatrixView<const float> keys, int64_t zeroed, const MemoryKeyNorm& norm, MatrixView<float> out) {
  CheckView(keys, "keys");
  CheckView(out, keys.rows, keys.cols, "out");
  CheckMemoryKeyNorm(norm, keys.cols, CallSite::Here());
  CheckBetween(zeroed, 0, keys.cols, "zeroed");
  CheckSameOrApart(out, keys, "out to be keys or apart from them");
  for (int64_t r = 0; r < keys.rows; ++r) {
    std::fill_n(out.row(r), zeroed, 0.0f);
    if (out.row(r) != keys.row(r)) std::copy(keys.row(r) + zeroed, keys.row(r) + keys.cols, out.row(r) + zeroed);
  }
  LayerNorm(out, norm.weight, norm.bias, kLayerNormEpsilon, out);
}

void SeedRows(const SlotTokens& tokens, bool gated, const MemoryKeyNorm& norm, ValueReadout readout, SlotRows& rows,
              std::pmr::memory_resource* memory) {
  CheckSlotTokens(tokens, norm, rows, CallSite::Here());
  CheckAtMost(rows.count + tokens.keys.rows, rows.capacity, "rows.count + tokens.keys.rows");
  HWY_DYNAMIC_DISPATCH(SeedRowsImpl)(tokens, gated, norm, readout, rows, memory);
}

void ApplyRoutes(absl::Span<SlotUpdateHead> heads, absl::Span<const SlotRoutes> routes, ThreadPool& pool) {
  CheckEq(routes.size(), heads.size(), "routes.size()");
  for (size_t h = 0; h < heads.size(); ++h) CheckRoutes(heads[h], routes[h], CallSite::Here());
  const auto apply = HWY_DYNAMIC_DISPATCH(ApplyHeadImpl);
  pool.ParallelFor(static_cast<int64_t>(heads.size()), [&](int64_t h) { apply(heads[h], routes[h], pool.memory()); });
}

void RefreshReadout(const MemoryKeyNorm& norm, ValueReadout readout, SlotRows& rows,
                    std::pmr::memory_resource* memory) {
  CheckSlotRows(rows, CallSite::Here());
  CheckMemoryKeyNorm(norm, rows.qk_dim, CallSite::Here());
  HWY_DYNAMIC_DISPATCH(RefreshReadoutImpl)(norm, readout, rows, memory);
}

}  // namespace kvm
#endif  // HWY_ONCE
