#include "testing/reference_model/reference_attention.h"

#include <algorithm>
#include <cmath>

#include "kvm/kernels/bfloat16.h"
#include "testing/reference_model/reference_mixers.h"

namespace kvm {
namespace reference {
namespace {

HeadRows SplitHeads(const Rows& x, int64_t heads) {
  HeadRows split(heads);
  const int64_t dim = static_cast<int64_t>(x[0].size()) / heads;
  for (int64_t h = 0; h < heads; ++h) {
    for (const Row& row : x) split[h].push_back(Slice(row, h * dim, dim));
  }
  return split;
}

// Frequencies and angles are float32 by definition.
std::vector<float> Frequencies(int64_t rotary_dim, double theta) {
  const int64_t n = rotary_dim / 2;
  std::vector<float> frequencies;
  const float inverse = static_cast<float>(1 / theta);
  const float step = n > 1 ? 1.0f / static_cast<float>(n - 1) : 0.0f;
  for (int64_t p = 0; p < n; ++p) {
    const float exponent =
        p < n / 2 || n == 1 ? step * static_cast<float>(p) : 1.0f - step * static_cast<float>(n - 1 - p);
    frequencies.push_back(std::pow(inverse, exponent));
  }
  return frequencies;
}

void Rotate(const std::vector<float>& frequencies, StackSpec::TableType table, Rows* x) {
  const auto rounded = [table](double value) {
    const float f = static_cast<float>(value);
    return static_cast<double>(table == StackSpec::BFLOAT16 ? ToFloat(ToBFloat16(f)) : f);
  };
  for (size_t t = 0; t < x->size(); ++t) {
    Row& row = (*x)[t];
    for (size_t p = 0; p < frequencies.size(); ++p) {
      const double angle = static_cast<float>(t) * frequencies[p];
      const double cos = rounded(std::cos(angle)), sin = rounded(std::sin(angle));
      const double even = row[2 * p], odd = row[2 * p + 1];
      row[2 * p] = cos * even + sin * odd;
      row[2 * p + 1] = cos * odd - sin * even;
    }
  }
}

// v += (anchor − v) ⊙ σ(v_gate0 + v_gate2·(v_gate1·x)).
void GateValues(const Weights& weights, const Rows& x, const Rows& anchor, Rows* v) {
  const Row bias = weights.Vector("v_gate0");
  const Rows gate = Linear(Linear(x, weights, "v_gate1"), weights, "v_gate2");
  for (size_t t = 0; t < x.size(); ++t) {
    for (size_t i = 0; i < bias.size(); ++i) {
      double& value = (*v)[t][i];
      value += (anchor[t][i] - value) * Sigmoid(bias[i] + gate[t][i]);
    }
  }
}

}  // namespace

Projected ProjectWithoutNorms(const ProjectionSpec& spec, const Weights& weights, const Rows& x, const Rows& anchor) {
  Projected out;
  out.num_heads = spec.num_heads();
  out.num_kv_heads = spec.has_num_kv_heads() ? spec.num_kv_heads() : spec.num_heads();
  Rows q = Linear(x, weights, "c_q"), k = Linear(x, weights, "c_k"), v = Linear(x, weights, "c_v");
  if (spec.value_residual() == ProjectionSpec::RWKV) GateValues(weights, x, anchor, &v);
  if (spec.value_residual() == ProjectionSpec::LINEAR) {
    const double lamb = weights.Vector("lamb")[0];
    for (size_t t = 0; t < v.size(); ++t) {
      for (size_t i = 0; i < v[t].size(); ++i) v[t][i] = (1 - lamb) * v[t][i] + lamb * anchor[t][i];
    }
  }
  if (spec.token_shift()) {
    q = ShiftMix(q, weights.Vector("x_q"), BeforeFirst::kFirst);
    k = ShiftMix(k, weights.Vector("x_k"), BeforeFirst::kFirst);
    v = ShiftMix(v, weights.Vector("x_v"), BeforeFirst::kFirst);
  }
  if (spec.value_residual() == ProjectionSpec::RWKV_POST_TOKEN_SHIFT) {
    const Row mix = weights.Vector(v[0].size() == x[0].size() ? "x_v" : "x_v_hidden");
    GateValues(weights, ShiftMix(x, mix, BeforeFirst::kFirst), anchor, &v);
  }
  out.q = SplitHeads(q, out.num_heads);
  out.k = SplitHeads(k, out.num_kv_heads);
  out.v = SplitHeads(v, out.num_kv_heads);
  return out;
}

Projected Project(const ProjectionSpec& spec, StackSpec::TableType table, const Weights& weights, const Rows& x,
                  const Rows& anchor) {
  Projected out = ProjectWithoutNorms(spec, weights, x, anchor);
  const std::vector<float> frequencies = Frequencies(spec.rotary_dim(), spec.rotary_theta());
  for (Rows& head : out.q) {
    head = LayerNorm(head, weights, "ln_q");
    Rotate(frequencies, table, &head);
  }
  for (Rows& head : out.k) {
    head = LayerNorm(head, weights, "ln_k");
    Rotate(frequencies, table, &head);
  }
  return out;
}

Row Attend(const Row& query, const Rows& keys, const Row& scales, const Rows& values, const Row& biases) {
  Row scores(keys.size());
  for (size_t j = 0; j < keys.size(); ++j) {
    scores[j] = Dot(query, keys[j]) * scales[j] + (biases.empty() ? 0 : biases[j]);
  }
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& s : scores) sum += s = std::exp(s - largest);
  Row out(values[0].size(), 0);
  for (size_t j = 0; j < keys.size(); ++j) {
    for (size_t i = 0; i < out.size(); ++i) out[i] += scores[j] / sum * values[j][i];
  }
  return out;
}

Rows JoinHeads(const HeadRows& heads) {
  Rows joined = heads[0];
  for (size_t h = 1; h < heads.size(); ++h) {
    for (size_t t = 0; t < joined.size(); ++t) {
      joined[t].insert(joined[t].end(), heads[h][t].begin(), heads[h][t].end());
    }
  }
  return joined;
}

Rows Attention(const AttentionSpec& spec, StackSpec::TableType table, const Weights& weights, const Rows& x,
               const Rows& anchor) {
  const Projected p = Project(spec.projections(), table, weights, x, anchor);
  HeadRows out(p.num_heads);
  for (int64_t h = 0; h < p.num_heads; ++h) {
    const Rows& keys = p.k[h / (p.num_heads / p.num_kv_heads)];
    const Rows& values = p.v[h / (p.num_heads / p.num_kv_heads)];
    for (int64_t t = 0; t < static_cast<int64_t>(x.size()); ++t) {
      const int64_t first = spec.has_window() ? std::max<int64_t>(0, t - (spec.window() - 1)) : 0;
      const Rows seen_keys(keys.begin() + first, keys.begin() + t + 1);
      const Rows seen_values(values.begin() + first, values.begin() + t + 1);
      const Row scales(seen_keys.size(), 1 / std::sqrt(static_cast<double>(keys[0].size())));
      out[h].push_back(Attend(p.q[h][t], seen_keys, scales, seen_values));
    }
  }
  return Linear(JoinHeads(out), weights, "c_proj");
}

Rows BlockWindow(const BlockWindowSpec& spec, StackSpec::TableType table, const Weights& weights, const Rows& x,
                 const Rows& anchor) {
  const Projected p = Project(spec.projections(), table, weights, x, anchor);
  HeadRows out(p.num_heads);
  for (int64_t h = 0; h < p.num_heads; ++h) {
    const Rows& keys = p.k[h / (p.num_heads / p.num_kv_heads)];
    const Rows& values = p.v[h / (p.num_heads / p.num_kv_heads)];
    for (int64_t t = 0; t < static_cast<int64_t>(x.size()); ++t) {
      Rows seen_keys, seen_values;
      for (int64_t j = 0; j <= t; ++j) {
        const int64_t chunks_ago = t / spec.chunk_len() - j / spec.chunk_len();
        if (j >= spec.num_sinks() && chunks_ago >= spec.window_chunks()) continue;
        seen_keys.push_back(keys[j]);
        seen_values.push_back(values[j]);
      }
      const Row scales(seen_keys.size(), 1 / std::sqrt(static_cast<double>(keys[0].size())));
      out[h].push_back(Attend(p.q[h][t], seen_keys, scales, seen_values));
    }
  }
  return Linear(JoinHeads(out), weights, "c_proj");
}

}  // namespace reference
}  // namespace kvm
