#include "kvm/kernels/reference/wkv7.h"

#include <algorithm>
#include <cmath>

namespace kvm {
namespace reference {

std::vector<double> Wkv7Step(const Wkv7Token& token, std::vector<std::vector<double>>& state) {
  const std::vector<std::vector<double>> old = state;
  const size_t dim = token.r.size();
  std::vector<double> out(dim, 0);
  for (size_t j = 0; j < dim; ++j) {
    double removed = 0;
    for (size_t i = 0; i < dim; ++i) removed -= token.kappa[i] * old[i][j];
    for (size_t i = 0; i < dim; ++i) {
      state[i][j] = token.w[i] * old[i][j] + token.kappa[i] * token.a[i] * removed + token.k[i] * token.v[j];
      out[j] += token.r[i] * state[i][j];
    }
  }
  return out;
}

void Wkv7Keys(const std::vector<double>& a, const std::vector<double>& k_k, const std::vector<double>& k_a,
              std::vector<double>& k, std::vector<double>& kappa) {
  double squares = 0;
  kappa.resize(k.size());
  for (size_t c = 0; c < k.size(); ++c) {
    kappa[c] = k[c] * k_k[c];
    squares += kappa[c] * kappa[c];
    k[c] *= 1 + (a[c] - 1) * k_a[c];
  }
  for (double& x : kappa) x /= std::max(std::sqrt(squares), 1e-12);
}

}  // namespace reference
}  // namespace kvm
