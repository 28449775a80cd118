#ifndef KVM_KERNELS_CPU_SLOT_UPDATE_TESTING_H_
#define KVM_KERNELS_CPU_SLOT_UPDATE_TESTING_H_

// State rows and tokens for tests of slot_update.h, small and exact.

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "kvm/kernels/bfloat16.h"
#include "kvm/kernels/cpu/slot_update.h"
#include "kvm/kernels/key_value.h"
#include "kvm/kernels/reference/slot_update.h"
#include "kvm/kernels/slot_rows.h"

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
        values16(values32.size()) {
    rows.capacity = capacity;
    rows.qk_dim = kQk;
    rows.v_dim = kV;
    rows.key_sums = key_sums.data();
    rows.value_sums = value_sums.data();
    rows.radii = radii.data();
    rows.readout_dtype = dtype;
    rows.readout_keys = dtype == DType::kF32 ? static_cast<void*>(keys32.data()) : keys16.data();
    rows.readout_values = dtype == DType::kF32 ? static_cast<void*>(values32.data()) : values16.data();
  }
  Memory(const Memory&) = delete;

  float ReadoutKey(int64_t row, int64_t c) const {
    const int64_t at = KeyPanelOffset(row, c, kQk);
    return rows.readout_dtype == DType::kF32 ? keys32[at] : ToFloat(keys16[at]);
  }
  float ReadoutValue(int64_t row, int64_t c) const {
    const int64_t at = row * kV + c;
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

}  // namespace kvm

#endif  // KVM_KERNELS_CPU_SLOT_UPDATE_TESTING_H_
