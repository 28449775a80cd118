#include "kvm/kernels/reference/delta_rule.h"

#include <cmath>
#include <cstddef>

#include "kvm/kernels/reference/elementwise.h"

namespace kvm {
namespace reference {

std::vector<double> DeltaRuleStep(const DeltaRuleToken& token, std::vector<std::vector<double>>& state) {
  const size_t keys = token.k.size(), values = token.v.size();
  std::vector<double> out(values, 0);
  for (size_t i = 0; i < keys; ++i) {
    for (size_t j = 0; j < values; ++j) state[i][j] *= std::exp(token.log_decay[i]);
  }
  for (size_t j = 0; j < values; ++j) {
    double predicted = 0;
    for (size_t i = 0; i < keys; ++i) predicted += state[i][j] * token.k[i];
    const double error = token.beta * (token.v[j] - predicted);
    for (size_t i = 0; i < keys; ++i) {
      state[i][j] += token.k[i] * error;
      out[j] += state[i][j] * token.q[i];
    }
  }
  return out;
}

std::vector<double> DeltaUnitLength(const std::vector<double>& x, double scale) {
  double squares = 0;
  for (const double e : x) squares += e * e;
  std::vector<double> out;
  for (const double e : x) out.push_back(scale * e / std::sqrt(squares + 1e-6));
  return out;
}

double SoftplusLogDecay(double x, double rate) { return -rate * Softplus(x); }

double BoundedLogDecay(double x, double rate, double lower_bound) { return lower_bound * Sigmoid(rate * x); }

std::vector<double> GatedRmsNorm(const std::vector<double>& x, const std::vector<double>& weight, double epsilon,
                                 const std::vector<double>& gate) {
  double squares = 0;
  for (const double e : x) squares += e * e;
  const double length = std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
  std::vector<double> out;
  for (size_t i = 0; i < x.size(); ++i) out.push_back(x[i] / length * weight[i] * gate[i]);
  return out;
}

}  // namespace reference
}  // namespace kvm
