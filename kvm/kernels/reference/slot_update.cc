#include "kvm/kernels/reference/slot_update.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kvm {
namespace reference {
namespace {

Vector LayerNorm(const Vector& x, const Vector& weight, const Vector& bias) {
  const double n = static_cast<double>(x.size());
  double mean = 0;
  for (double e : x) mean += e / n;
  double variance = 0;
  for (double e : x) variance += (e - mean) * (e - mean) / n;
  Vector out(x.size());
  for (size_t c = 0; c < x.size(); ++c) out[c] = (x[c] - mean) / std::sqrt(variance + 1e-5) * weight[c] + bias[c];
  return out;
}

double Dot(const Vector& a, const Vector& b) {
  double dot = 0;
  for (size_t c = 0; c < a.size(); ++c) dot += a[c] * b[c];
  return dot;
}

Vector Scaled(double factor, Vector x) {
  for (double& e : x) e *= factor;
  return x;
}

void Add(const Vector& x, Vector& sum) {
  for (size_t c = 0; c < x.size(); ++c) sum[c] += x[c];
}

void Append(const SlotToken& token, bool gated, const SlotRules& rules, SlotState& state) {
  state.key_sums.push_back(gated ? Scaled(token.key_gate, token.key) : token.key);
  state.value_sums.push_back(gated ? Scaled(token.value_gate, token.value) : token.value);
  const Vector& value = state.value_sums.back();
  state.radii.push_back(rules.use_radius ? std::sqrt(Dot(value, value)) : 1);
}

Vector Scores(const SlotToken& token, const SlotRules& rules, const SlotState& state) {
  Vector scores;
  for (size_t row = 0; row < state.key_sums.size(); ++row) {
    scores.push_back(Dot(token.key, ReadoutKey(state, static_cast<int64_t>(row), rules)));
  }
  return scores;
}

// The smallest step between different numbers of which one is `x`.
double Gap(double x, const Vector& others) {
  double gap = std::numeric_limits<double>::infinity();
  for (double other : others) {
    if (other != x) gap = std::min(gap, std::abs(other - x));
  }
  return gap;
}

}  // namespace

Vector MemoryKey(Vector key, int64_t zeroed, const Vector& norm_weight, const Vector& norm_bias) {
  std::fill_n(key.begin(), zeroed, 0.0);
  return LayerNorm(key, norm_weight, norm_bias);
}

void SeedRows(const std::vector<SlotToken>& tokens, bool gated, const SlotRules& rules, SlotState& state) {
  for (const SlotToken& token : tokens) {
    Append(token, gated, rules, state);
    if (rules.use_radius) state.radii.back() = std::sqrt(Dot(token.value, token.value));
  }
}

SlotRoutes RouteTokens(const std::vector<SlotToken>& tokens, int64_t num_appends, const SlotRules& rules,
                       const SlotState& state) {
  SlotRoutes routes;
  routes.row_of_token.assign(tokens.size(), -1);
  routes.second_row.assign(tokens.size(), -1);
  routes.appended.assign(tokens.size(), false);
  routes.smallest_gap = std::numeric_limits<double>::infinity();

  // Appends: take the least redundant token left, the earliest of equals, until enough are taken.
  Vector redundancy;
  for (const SlotToken& token : tokens) {
    const Vector scores = Scores(token, rules, state);
    redundancy.push_back(scores.empty() ? 0 : *std::max_element(scores.begin(), scores.end()));
  }
  for (int64_t i = 0; i < num_appends; ++i) {
    size_t least = tokens.size();
    for (size_t t = 0; t < tokens.size(); ++t) {
      if (!routes.appended[t] && (least == tokens.size() || redundancy[t] < redundancy[least])) least = t;
    }
    routes.smallest_gap = std::min(routes.smallest_gap, Gap(redundancy[least], {rules.append_below}));
    if (redundancy[least] >= rules.append_below) break;
    routes.appended[least] = true;
    routes.smallest_gap = std::min(routes.smallest_gap, Gap(redundancy[least], redundancy));
  }

  // Merges, into the rows as they are once these tokens are rows.
  SlotState with_appended = state;
  for (size_t t = 0; t < tokens.size(); ++t) {
    if (!routes.appended[t]) continue;
    routes.row_of_token[t] = static_cast<int64_t>(with_appended.radii.size());
    Append(tokens[t], rules.gate_appends, rules, with_appended);
  }
  for (size_t t = 0; t < tokens.size(); ++t) {
    if (routes.appended[t]) continue;
    Vector scores = Scores(tokens[t], rules, with_appended);
    scores.erase(scores.begin(), scores.begin() + rules.num_sinks);
    const auto best = std::max_element(scores.begin(), scores.end());
    routes.row_of_token[t] = rules.num_sinks + (best - scores.begin());
    routes.smallest_gap = std::min(routes.smallest_gap, Gap(*best, scores));
    if (rules.second_merge == 0 || scores.size() < 2) continue;
    *best = -std::numeric_limits<double>::infinity();
    const auto second = std::max_element(scores.begin(), scores.end());
    routes.smallest_gap = std::min(routes.smallest_gap, Gap(*second, scores));
    routes.second_row[t] = rules.num_sinks + (second - scores.begin());
  }
  return routes;
}

void ApplyRoutes(const std::vector<SlotToken>& tokens, const SlotRoutes& routes, const SlotRules& rules,
                 SlotState& state) {
  const int64_t old_count = static_cast<int64_t>(state.radii.size());
  for (size_t t = 0; t < tokens.size(); ++t) {
    if (routes.appended[t]) Append(tokens[t], rules.gate_appends, rules, state);
  }
  struct Addition {
    size_t token;
    double weight;
  };
  std::vector<std::vector<Addition>> additions(state.radii.size());
  for (size_t t = 0; t < tokens.size(); ++t) {
    if (routes.appended[t]) continue;
    additions[routes.row_of_token[t]].push_back({t, 1});
    if (routes.second_row[t] >= 0) additions[routes.second_row[t]].push_back({t, rules.second_merge});
  }
  for (size_t row = 0; row < additions.size(); ++row) {
    Vector& key_sum = state.key_sums[row];
    Vector& value_sum = state.value_sums[row];
    if (!additions[row].empty() && static_cast<int64_t>(row) < old_count) {
      key_sum = Scaled(rules.merge_decay, key_sum);
      value_sum = Scaled(rules.merge_decay, value_sum);
    }
    for (const Addition& a : additions[row]) {
      Add(Scaled(a.weight * tokens[a.token].key_gate, tokens[a.token].key), key_sum);
      Add(Scaled(a.weight * tokens[a.token].value_gate, tokens[a.token].value), value_sum);
    }
  }
  if (!rules.use_radius) {
    for (double& count : state.radii) count += 1;
  }
}

Vector ReadoutKey(const SlotState& state, int64_t row, const SlotRules& rules) {
  return LayerNorm(state.key_sums[row], rules.norm_weight, rules.norm_bias);
}

Vector ReadoutValue(const SlotState& state, int64_t row, const SlotRules& rules) {
  const Vector& sum = state.value_sums[row];
  if (!rules.use_radius) return Scaled(1 / state.radii[row], sum);
  return Scaled(state.radii[row] / std::max(std::sqrt(Dot(sum, sum)), 1e-12), sum);
}

}  // namespace reference
}  // namespace kvm
