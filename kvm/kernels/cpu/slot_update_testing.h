#ifndef KVM_KERNELS_CPU_SLOT_UPDATE_TESTING_H_
#define KVM_KERNELS_CPU_SLOT_UPDATE_TESTING_H_

// State rows and tokens for tests of slot_update.h, small and exact.

#include <algorithm>
#include <cstdint>
#include <memory_resource>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/bfloat16.h"
#include "kvm/kernels/cpu/slot_update.h"
#include "kvm/kernels/key_value.h"
#include "kvm/kernels/reference/slot_update.h"
#include "kvm/kernels/slot_rows.h"
#include "kvm/kernels/thread_pool.h"

namespace kvm {

inline constexpr int64_t kQk = 12;
inline constexpr int64_t kV = 5;

// Memory for one head's rows.
struct Memory {
  Memory(int64_t capacity, DType dtype)
      : key_sums(capacity * kQk),
        value_sums(capacity * kV),
        radii(capacity),
        keys32(KeyPanelElements(capacity, kQk)),
        values32(capacity * kV),
        keys16(keys32.size()),
        values16(values32.size()),
        keys8(keys32.size()),
        values8(values32.size()),
        key_scales(capacity),
        value_scales(capacity) {
    rows.capacity = capacity;
    rows.qk_dim = kQk;
    rows.v_dim = kV;
    rows.key_sums = key_sums.data();
    rows.value_sums = value_sums.data();
    rows.radii = radii.data();
    rows.readout_dtype = dtype;
    rows.readout_keys = keys32.data();
    rows.readout_values = values32.data();
    if (dtype == DType::kBF16) {
      rows.readout_keys = keys16.data();
      rows.readout_values = values16.data();
    } else if (dtype == DType::kI8) {
      rows.readout_keys = keys8.data();
      rows.readout_values = values8.data();
      rows.readout_key_scales = key_scales.data();
      rows.readout_value_scales = value_scales.data();
    }
  }
  Memory(const Memory&) = delete;

  float ReadoutKey(int64_t row, int64_t c) const {
    const int64_t at = KeyPanelOffset(row, c, kQk);
    if (rows.readout_dtype == DType::kI8) return key_scales[row] * static_cast<float>(keys8[at]);
    return rows.readout_dtype == DType::kF32 ? keys32[at] : ToFloat(keys16[at]);
  }
  float ReadoutValue(int64_t row, int64_t c) const {
    const int64_t at = row * kV + c;
    if (rows.readout_dtype == DType::kI8) return value_scales[row] * static_cast<float>(values8[at]);
    return rows.readout_dtype == DType::kF32 ? values32[at] : ToFloat(values16[at]);
  }
  // Everything that is kept of a row.
  std::vector<float> Row(int64_t row) const {
    std::vector<float> all(key_sums.begin() + row * kQk, key_sums.begin() + (row + 1) * kQk);
    all.insert(all.end(), value_sums.begin() + row * kV, value_sums.begin() + (row + 1) * kV);
    all.push_back(radii[row]);
    for (int64_t c = 0; c < kQk; ++c) all.push_back(ReadoutKey(row, c));
    for (int64_t c = 0; c < kV; ++c) all.push_back(ReadoutValue(row, c));
    return all;
  }

  std::vector<float> key_sums, value_sums, radii, keys32, values32;
  std::vector<BFloat16> keys16, values16;
  std::vector<int8_t> keys8, values8;
  std::vector<float> key_scales, value_scales;
  SlotRows rows;
};

// Tokens with small integers, so that sums are exact and equal tokens are exactly equal.
struct Tokens {
  Tokens(int64_t n, uint32_t seed) : keys(n * kQk), values(n * kV) {
    std::mt19937 random(seed);
    std::uniform_int_distribution<int> integer(-4, 4);
    for (float& x : keys) x = static_cast<float>(integer(random));
    for (float& x : values) x = static_cast<float>(integer(random));
  }
  void AddGates(uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_int_distribution<int> quarters(0, 8);
    for (int64_t t = 0; t < size(); ++t) {
      key_gates.push_back(static_cast<float>(quarters(random)) * 0.25f);
      value_gates.push_back(static_cast<float>(quarters(random)) * 0.25f);
    }
  }
  void CopyKey(int64_t from, int64_t to) { std::copy_n(keys.begin() + from * kQk, kQk, keys.begin() + to * kQk); }

  int64_t size() const { return static_cast<int64_t>(keys.size()) / kQk; }
  SlotTokens View() const { return {{keys.data(), size(), kQk}, {values.data(), size(), kV}, key_gates, value_gates}; }
  std::vector<reference::SlotToken> Reference() const {
    std::vector<reference::SlotToken> tokens;
    for (int64_t t = 0; t < size(); ++t) {
      reference::SlotToken token;
      token.key.assign(keys.begin() + t * kQk, keys.begin() + (t + 1) * kQk);
      token.value.assign(values.begin() + t * kV, values.begin() + (t + 1) * kV);
      if (!key_gates.empty()) token.key_gate = key_gates[t];
      if (!value_gates.empty()) token.value_gate = value_gates[t];
      tokens.push_back(token);
    }
    return tokens;
  }

  std::vector<float> keys, values, key_gates, value_gates;
};

struct Norm {
  Norm() {
    for (int64_t c = 0; c < kQk; ++c) {
      weight.push_back(0.5f + 0.25f * static_cast<float>(c % 4));
      bias.push_back(0.125f * static_cast<float>(c % 3 - 1));
    }
  }
  MemoryKeyNorm View() const { return {weight, bias}; }
  std::vector<float> weight, bias;
};

// Far above float32's rounding of the tests' scores, which stay below 1000.
inline constexpr double kClearGap = 1e-3;

inline reference::SlotRules Rules(const SlotUpdateOptions& options, const Norm& norm) {
  reference::SlotRules rules;
  rules.norm_weight.assign(norm.weight.begin(), norm.weight.end());
  rules.norm_bias.assign(norm.bias.begin(), norm.bias.end());
  rules.num_sinks = options.num_sinks;
  rules.gate_appends = options.gate_appends;
  rules.use_radius = options.readout == ValueReadout::kRadius;
  rules.append_below = options.append_below;
  rules.second_merge = options.second_merge;
  rules.merge_decay = options.merge_decay;
  return rules;
}

// Sums must be exact, the numbers derived from them near the double ones.
inline void ExpectEqualsReference(const Memory& memory, const reference::SlotState& state,
                                  const reference::SlotRules& rules) {
  ASSERT_EQ(memory.rows.count, static_cast<int64_t>(state.radii.size()));
  const double relative = memory.rows.readout_dtype == DType::kF32 ? 1e-6 : 1.0 / 256;
  for (int64_t row = 0; row < memory.rows.count; ++row) {
    SCOPED_TRACE(::testing::Message() << "row " << row);
    const reference::Vector key = reference::ReadoutKey(state, row, rules);
    const reference::Vector value = reference::ReadoutValue(state, row, rules);
    for (int64_t c = 0; c < kQk; ++c) {
      ASSERT_EQ(memory.key_sums[row * kQk + c], state.key_sums[row][c]);
      ASSERT_NEAR(memory.ReadoutKey(row, c), key[c], relative * 8);
    }
    for (int64_t c = 0; c < kV; ++c) {
      ASSERT_EQ(memory.value_sums[row * kV + c], state.value_sums[row][c]);
      ASSERT_NEAR(memory.ReadoutValue(row, c), value[c], relative * 16);
    }
    ASSERT_NEAR(memory.radii[row], state.radii[row], 1e-6 * state.radii[row]);
  }
}

// Rows 0..count, founded by tokens of their own.
inline void Found(int64_t count, const Norm& norm, const SlotUpdateOptions& options, Memory& memory,
                  reference::SlotState& state) {
  const Tokens tokens(count, /*seed=*/3);
  SeedRows(tokens.View(), false, norm.View(), options.readout, memory.rows);
  reference::SeedRows(tokens.Reference(), false, Rules(options, norm), state);
}

// One update of one head on one thread: where the tokens went.
inline SlotRoutes Update(const SlotTokens& tokens, const SlotUpdateOptions& options, const MemoryKeyNorm& norm,
                         SlotRows& rows) {
  ThreadPool pool(1);
  SlotUpdateHead head = {tokens, options, norm, rows};
  const auto routes = RouteTokens({&head, 1}, std::pmr::get_default_resource(), pool);
  ApplyRoutes({&head, 1}, routes, pool);
  rows = head.rows;
  return routes[0];
}

// One update in both worlds; everything must agree.
inline void UpdateBoth(const Tokens& tokens, const SlotUpdateOptions& options, const Norm& norm, Memory& memory,
                       reference::SlotState& state) {
  const reference::SlotRules rules = Rules(options, norm);
  const std::vector<reference::SlotToken> reference_tokens = tokens.Reference();
  const auto routes = Update(tokens.View(), options, norm.View(), memory.rows);
  const reference::SlotRoutes expected = reference::RouteTokens(reference_tokens, options.num_appends, rules, state);
  reference::ApplyRoutes(reference_tokens, expected, rules, state);
  ASSERT_GT(expected.smallest_gap, kClearGap) << "pick another seed: rounding could decide a route";
  ASSERT_EQ(std::vector<int64_t>(routes.row_of_token.begin(), routes.row_of_token.end()), expected.row_of_token);
  ASSERT_EQ(std::vector<int64_t>(routes.second_row.begin(), routes.second_row.end()), expected.second_row);
  ASSERT_EQ(std::vector<bool>(routes.appended.begin(), routes.appended.end()), expected.appended);
  ExpectEqualsReference(memory, state, rules);
}

}  // namespace kvm

#endif  // KVM_KERNELS_CPU_SLOT_UPDATE_TESTING_H_
