#include <algorithm>
#include <cmath>

#include "testing/reference_model/reference_mixers.h"

namespace kvm {
namespace reference {
namespace {

double Silu(double x) { return x * Sigmoid(x); }

double Softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

Row Scaled(Row x, double factor) {
  for (double& v : x) v *= factor;
  return x;
}

double UnitFactor(const Row& x) { return 1 / std::sqrt(Dot(x, x) + 1e-6); }

// `name`_proj, then `name`_conv1d of every channel if there is a convolution, then SiLU.
Rows Convolved(const Rows& x, const Weights& weights, const std::string& name, const ShortConvolutionSpec& spec) {
  const Rows u = Linear(x, weights, name + "_proj");
  const int64_t size = spec.enabled() ? spec.size() : 1;
  const Row filters = spec.enabled() ? weights.Vector(name + "_conv1d.weight") : Row(u[0].size(), 1);
  const Row bias = spec.enabled() && spec.bias() ? weights.Vector(name + "_conv1d.bias") : Row(u[0].size(), 0);
  Rows out = u;
  for (int64_t t = 0; t < static_cast<int64_t>(u.size()); ++t) {
    for (size_t c = 0; c < u[t].size(); ++c) {
      double sum = bias[c];
      for (int64_t j = 0; j < size; ++j) {
        const int64_t from = t - (size - 1) + j;
        if (from >= 0) sum += filters[c * size + j] * u[from][c];
      }
      out[t][c] = Silu(sum);
    }
  }
  return out;
}

// What both mixers have in common. log_decay [T][HV or HV·K]; gate [T][HV·V], or empty for none.
template <class Spec>
Rows DeltaNet(const Spec& spec, const Weights& weights, const Rows& x, const Rows& log_decay, const Rows& gate) {
  const int64_t heads = spec.num_heads();
  const int64_t value_heads = spec.has_num_value_heads() ? spec.num_value_heads() : heads;
  const Rows q = Convolved(x, weights, "q", spec.convolution()), k = Convolved(x, weights, "k", spec.convolution());
  const Rows v = Convolved(x, weights, "v", spec.convolution()), b = Linear(x, weights, "b_proj");
  const Row norm = weights.Vector("o_norm.weight");
  const int64_t keys = static_cast<int64_t>(q[0].size()) / heads, values = static_cast<int64_t>(norm.size());
  Rows out(x.size(), Row(value_heads * values));
  for (int64_t h = 0; h < value_heads; ++h) {
    const int64_t from = h / (value_heads / heads) * keys;
    Rows state(keys, Row(values, 0));
    for (size_t t = 0; t < x.size(); ++t) {
      Row query = Slice(q[t], from, keys), key = Slice(k[t], from, keys);
      query = Scaled(query, UnitFactor(query) / std::sqrt(static_cast<double>(keys)));
      key = Scaled(key, UnitFactor(key));
      const double beta = Sigmoid(b[t][h]) * (spec.allow_negative_eigenvalues() ? 2 : 1);
      const bool shared = static_cast<int64_t>(log_decay[t].size()) == value_heads;
      for (int64_t i = 0; i < keys; ++i) {
        state[i] = Scaled(state[i], std::exp(log_decay[t][shared ? h : h * keys + i]));
      }
      Row read(values, 0);
      for (int64_t j = 0; j < values; ++j) {
        double stored = 0;
        for (int64_t i = 0; i < keys; ++i) stored += state[i][j] * key[i];
        const double written = beta * (v[t][h * values + j] - stored);
        for (int64_t i = 0; i < keys; ++i) {
          state[i][j] += key[i] * written;
          read[j] += state[i][j] * query[i];
        }
      }
      const double length = std::sqrt(Dot(read, read) / static_cast<double>(values) + spec.norm_epsilon());
      for (int64_t j = 0; j < values; ++j) {
        const int64_t c = h * values + j;
        out[t][c] = read[j] / length * norm[j] * (gate.empty() ? 1 : gate[t][c]);
      }
    }
  }
  return Linear(out, weights, "o_proj");
}

}  // namespace

Rows GatedDeltaNet(const GatedDeltaNetSpec& spec, const Weights& weights, const Rows& x) {
  const Row a_log = weights.Vector("A_log"), dt_bias = weights.Vector("dt_bias");
  Rows log_decay = Linear(x, weights, "a_proj");
  for (Row& row : log_decay) {
    for (size_t h = 0; h < row.size(); ++h) row[h] = -std::exp(a_log[h]) * Softplus(row[h] + dt_bias[h]);
  }
  Rows gate;
  if (spec.output_gate()) gate = Linear(x, weights, "g_proj");
  for (Row& row : gate) {
    for (double& g : row) g = Silu(g);
  }
  return DeltaNet(spec, weights, x, log_decay, gate);
}

Rows KimiDelta(const KimiDeltaSpec& spec, const Weights& weights, const Rows& x) {
  const Row a_log = weights.Vector("A_log"), dt_bias = weights.Vector("dt_bias");
  const Row gate_bias = weights.Vector("g_proj.1.bias");
  Rows log_decay = Linear(Linear(x, weights, "f_proj.0"), weights, "f_proj.1");
  const size_t keys = dt_bias.size() / a_log.size();
  for (Row& row : log_decay) {
    for (size_t i = 0; i < row.size(); ++i) {
      const double rate = std::exp(a_log[i / keys]), f = row[i] + dt_bias[i];
      row[i] = spec.has_decay_lower_bound() ? spec.decay_lower_bound() * Sigmoid(rate * f) : -rate * Softplus(f);
    }
  }
  Rows gate = Linear(Linear(x, weights, "g_proj.0"), weights, "g_proj.1");
  for (Row& row : gate) {
    for (size_t i = 0; i < row.size(); ++i) row[i] = Sigmoid(row[i] + gate_bias[i]);
  }
  return DeltaNet(spec, weights, x, log_decay, gate);
}

}  // namespace reference
}  // namespace kvm
