#include <algorithm>
#include <cmath>

#include "testing/reference_model/reference_mixers.h"

namespace kvm {
namespace reference {

Rows Rwkv7(const Rwkv7Spec& spec, const Weights& weights, const Rows& x, const Rows& anchor) {
  const int64_t length = static_cast<int64_t>(x.size());
  const int64_t width = static_cast<int64_t>(x[0].size()), heads = spec.num_heads(), dim = width / heads;
  const auto mixed = [&](const char* name) {
    return spec.token_shift() ? ShiftMix(x, weights.Vector(name), BeforeFirst::kZero) : x;
  };
  const auto vector = [&](const char* name) { return weights.Vector(name); };
  const Rows xv = mixed("x_v");
  const Rows r = Linear(mixed("x_r"), weights, "receptance"), keys = Linear(mixed("x_k"), weights, "key"),
             values = Linear(xv, weights, "value");
  Rows decay_inner = Linear(mixed("x_w"), weights, "w1"), gate_inner = Linear(mixed("x_g"), weights, "g1");
  for (Row& row : decay_inner) {
    for (double& v : row) v = std::tanh(v);
  }
  for (Row& row : gate_inner) {
    for (double& v : row) v = Sigmoid(v);
  }
  const Rows decay = Linear(decay_inner, weights, "w2"), gate = Linear(gate_inner, weights, "g2");
  const Rows rate = Linear(Linear(mixed("x_a"), weights, "a1"), weights, "a2");
  const Rows value_gate = Linear(Linear(xv, weights, "v1"), weights, "v2");
  const Row w0 = vector("w0"), a0 = vector("a0"), v0 = vector("v0"), k_k = vector("k_k"), k_a = vector("k_a"),
            r_k = vector("r_k"), norm_weight = vector("ln_x.weight"), norm_bias = vector("ln_x.bias");

  Rows out(length, Row(width));
  for (int64_t h = 0; h < heads; ++h) {
    Rows state(dim, Row(dim, 0));  // [key][value]
    const int64_t base = h * dim;
    for (int64_t t = 0; t < length; ++t) {
      Row w(dim), k(dim), v(dim), a(dim), kappa(dim);
      for (int64_t i = 0; i < dim; ++i) {
        const int64_t c = base + i;
        // softplus(−z) = log(1 + exp(−z))
        w[i] = std::exp(-std::exp(-std::log1p(std::exp(-(w0[c] + decay[t][c]))) - 0.5));
        v[i] = values[t][c] + (anchor[t][c] - values[t][c]) * Sigmoid(v0[c] + value_gate[t][c]);
        a[i] = Sigmoid(a0[c] + rate[t][c]);
        kappa[i] = keys[t][c] * k_k[c];
        k[i] = keys[t][c] * (1 + (a[i] - 1) * k_a[c]);
      }
      const double length_of_kappa = std::max(Norm(kappa), 1e-12);
      for (double& value : kappa) value /= length_of_kappa;
      Row removed(dim, 0), read(dim, 0);
      for (int64_t j = 0; j < dim; ++j) {
        for (int64_t i = 0; i < dim; ++i) removed[j] -= kappa[i] * state[i][j];
      }
      double bonus = 0;
      for (int64_t i = 0; i < dim; ++i) {
        for (int64_t j = 0; j < dim; ++j) {
          state[i][j] = w[i] * state[i][j] + kappa[i] * a[i] * removed[j] + k[i] * v[j];
          read[j] += r[t][base + i] * state[i][j];
        }
        bonus += r[t][base + i] * k[i] * r_k[base + i];
      }
      const Row normed = LayerNorm(read, Slice(norm_weight, base, dim), Slice(norm_bias, base, dim), 64e-5);
      for (int64_t j = 0; j < dim; ++j) out[t][base + j] = (normed[j] + bonus * v[j]) * gate[t][base + j];
    }
  }
  return Linear(out, weights, "output");
}

}  // namespace reference
}  // namespace kvm
