#include "kvm/kernels/reference/norms.h"

#include <algorithm>
#include <cmath>

namespace kvm {
namespace reference {

std::vector<double> Normalize(const std::vector<float>& x, size_t n, const std::vector<float>& weight,
                              const std::vector<float>& bias, double epsilon) {
  std::vector<double> y(x.begin(), x.end());
  for (size_t begin = 0; begin < x.size(); begin += n) {
    double mean = 0, variance = 0;
    for (size_t i = begin; i < begin + n; ++i) mean += y[i] / n;
    for (size_t i = begin; i < begin + n; ++i) variance += (y[i] - mean) * (y[i] - mean) / n;
    for (size_t i = begin; i < begin + n; ++i) {
      const size_t p = i % weight.size();
      y[i] = (y[i] - mean) / std::sqrt(variance + epsilon) * weight[p] + bias[p];
    }
  }
  return y;
}

std::vector<double> UnitLength(const std::vector<float>& x, size_t n, double floor) {
  std::vector<double> y(x.begin(), x.end());
  for (size_t begin = 0; begin < x.size(); begin += n) {
    double squares = 0;
    for (size_t i = begin; i < begin + n; ++i) squares += y[i] * y[i];
    for (size_t i = begin; i < begin + n; ++i) y[i] /= std::max(std::sqrt(squares), floor);
  }
  return y;
}

}  // namespace reference
}  // namespace kvm
