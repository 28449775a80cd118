#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "testing/reference_model/reference_attention.h"
#include "testing/reference_model/reference_mixers.h"

namespace kvm {
namespace reference {
namespace {

// One key/value head of a KVM layer: state rows and how tokens enter them.
class KvmHead {
 public:
  KvmHead(const KvmSpec& spec, const Weights& weights, const Rows& k, const Rows& v, const Row& gates, KvmTrace* trace)
      : spec_(spec),
        norm_weight_(weights.Vector("ln_s_k.weight")),
        norm_bias_(weights.Vector("ln_s_k.bias")),
        v_(v),
        gates_(gates),
        trace_(trace) {
    for (Row key : k) {
      std::fill_n(key.begin(), spec.projections().rotary_dim(), 0);
      memory_keys_.push_back(Norm(key));
    }
  }

  const std::vector<StateRow>& rows() const { return rows_; }
  int64_t num_rows() const { return static_cast<int64_t>(rows_.size()); }

  void FoundFirstChunk() {
    const int64_t chunk = std::min<int64_t>(spec_.chunk_len(), static_cast<int64_t>(v_.size()));
    for (int64_t t = 0; t < chunk; ++t) {
      StateRow row = Entering(t, spec_.gate_initial_rows());
      row.radius = spec_.use_radius() ? reference::Norm(v_[t]) : 1;
      rows_.push_back(row);
    }
  }

  // The chunk that begins at b leaves the window.
  void TakeChunk(int64_t b) {
    const int64_t chunk = spec_.chunk_len();
    const int64_t num_appends = std::min(TargetRows(b) - num_rows(), chunk);
    std::vector<int64_t> tokens(chunk);
    std::iota(tokens.begin(), tokens.end(), b);
    std::vector<int64_t> merged = tokens;
    if (num_appends > 0) {
      Row redundancy;
      for (const int64_t t : tokens) {
        const Row scores = Scores(t, 0);
        redundancy.push_back(*std::max_element(scores.begin(), scores.end()));
      }
      std::stable_sort(tokens.begin(), tokens.end(),
                       [&](int64_t s, int64_t t) { return redundancy[s - b] < redundancy[t - b]; });
      if (num_appends < chunk) NoteGap(redundancy[tokens[num_appends] - b] - redundancy[tokens[num_appends - 1] - b]);
      std::vector<int64_t> appended(tokens.begin(), tokens.begin() + num_appends);
      merged.assign(tokens.begin() + num_appends, tokens.end());
      std::sort(appended.begin(), appended.end());
      for (const int64_t t : appended) {
        StateRow row = Entering(t, spec_.gate_appended_rows());
        row.radius = spec_.use_radius() ? reference::Norm(row.value) : 1;
        rows_.push_back(row);
      }
    }

    std::vector<std::pair<int64_t, int64_t>> picks;  // row, token
    for (const int64_t t : merged) {
      const Row scores = Scores(t, spec_.num_sinks());
      const auto best = std::max_element(scores.begin(), scores.end());  // the first of equals
      picks.push_back({spec_.num_sinks() + (best - scores.begin()), t});
      for (const double score : scores) NoteGap(*best - score);
    }
    for (const auto& [row, t] : picks) {
      const StateRow token = Entering(t, true);
      for (size_t i = 0; i < token.key.size(); ++i) rows_[row].key[i] += token.key[i];
      for (size_t i = 0; i < token.value.size(); ++i) rows_[row].value[i] += token.value[i];
    }
    if (!spec_.use_radius()) {
      for (StateRow& row : rows_) row.radius += 1;
    }
  }

  // What queries see of the rows.
  void AppendReadout(Rows* keys, Rows* values) const {
    for (const StateRow& row : rows_) {
      keys->push_back(Norm(row.key));
      const double scale =
          spec_.use_radius() ? row.radius / std::max(reference::Norm(row.value), 1e-12) : 1 / row.radius;
      values->push_back(row.value);
      for (double& x : values->back()) x *= scale;
    }
  }

 private:
  Row Norm(const Row& key) const { return LayerNorm(key, norm_weight_, norm_bias_); }
  // Equal scores come from equal keys (of equal tokens, as a rule): they are equal in float32 as well.
  void NoteGap(double gap) {
    if (gap > 0) trace_->smallest_gap = std::min(trace_->smallest_gap, gap);
  }

  // A token's key and value as they enter the state.
  StateRow Entering(int64_t t, bool gated) const {
    StateRow row = {memory_keys_[t], v_[t], 0};
    for (double& x : row.key) x *= gated && spec_.gate_keys() ? gates_[t] : 1;
    for (double& x : row.value) x *= gated && spec_.gate_values() ? gates_[t] : 1;
    return row;
  }

  // The similarity of token t to rows first...
  Row Scores(int64_t t, int64_t first) const {
    Row scores;
    for (int64_t r = first; r < num_rows(); ++r) scores.push_back(Dot(memory_keys_[t], Norm(rows_[r].key)));
    return scores;
  }

  int64_t TargetRows(int64_t b) const {
    const BudgetSpec& budget = spec_.budget();
    const int64_t chunk = spec_.chunk_len();
    const double context = static_cast<double>(b + chunk * spec_.window_chunks());
    int64_t target = budget.min_rows();
    if (budget.growth() != BudgetSpec::FIXED) {
      const double grown = budget.growth() == BudgetSpec::POWER_LAW
                               ? budget.factor() * std::pow(context, budget.exponent())
                               : budget.limit() * context / (budget.limit() + context);
      const int64_t whole = static_cast<int64_t>(std::floor(grown));
      target = std::max<int64_t>(target, whole / budget.round_down() * budget.round_down());
    }
    const int64_t available = b + chunk, most = chunk * budget.max_chunks();
    return std::max(std::min({target, available, most}), num_rows());
  }

  const KvmSpec& spec_;
  Row norm_weight_, norm_bias_;
  Rows memory_keys_;
  const Rows& v_;
  const Row& gates_;
  std::vector<StateRow> rows_;
  KvmTrace* trace_;
};

}  // namespace

Rows Kvm(const KvmSpec& spec, StackSpec::TableType table, const Weights& weights, const Rows& x, const Rows& anchor,
         KvmTrace* trace) {
  const Projected p = Project(spec.projections(), table, weights, x, anchor);
  const int64_t length = static_cast<int64_t>(x.size());
  const int64_t chunk = spec.chunk_len(), window = chunk * spec.window_chunks();
  const double scale = 1 / std::sqrt(static_cast<double>(p.k[0][0].size()));
  Row state_temperature(p.num_heads, 1), front_temperature(p.num_heads, 1);
  if (spec.head_temperatures()) {
    state_temperature = weights.Vector("state_head_temp");
    front_temperature = weights.Vector("front_head_temp");
  }
  Rows gates(length, Row(p.num_kv_heads, 1));
  if (spec.gate_keys() || spec.gate_values()) {
    gates = Linear(x, weights, "key_weighting");
    for (Row& row : gates) {
      for (double& g : row) g = g > 0 ? 1 + g : std::exp(g);
    }
  }

  HeadRows out(p.num_heads);
  trace->states.emplace_back();
  for (int64_t kv = 0; kv < p.num_kv_heads; ++kv) {
    Row head_gates;
    for (const Row& row : gates) head_gates.push_back(row[kv]);
    KvmHead state(spec, weights, p.k[kv], p.v[kv], head_gates, trace);
    state.FoundFirstChunk();
    for (int64_t t = 0; t < length; ++t) {
      // With t + 1 tokens, rounded up to whole chunks, the window begins here.
      const int64_t begin = std::max<int64_t>(0, (t + chunk) / chunk * chunk - window);
      if (t % chunk == 0 && begin >= 2 * chunk) state.TakeChunk(begin - chunk);
      Rows keys, values;
      if (t + 1 > window) state.AppendReadout(&keys, &values);
      const size_t num_rows = keys.size();
      keys.insert(keys.end(), p.k[kv].begin() + begin, p.k[kv].begin() + t + 1);
      values.insert(values.end(), p.v[kv].begin() + begin, p.v[kv].begin() + t + 1);
      const int64_t group = p.num_heads / p.num_kv_heads;
      for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
        Row scales(keys.size(), scale * front_temperature[h]);
        std::fill_n(scales.begin(), num_rows, scale * state_temperature[h]);
        out[h].push_back(Attend(p.q[h][t], keys, scales, values));
      }
    }
    trace->states.back().push_back(state.rows());
  }
  return Linear(JoinHeads(out), weights, "c_proj");
}

}  // namespace reference
}  // namespace kvm
