#include "kvm/kernels/reference/rotary.h"

#include <cmath>
#include <cstddef>

namespace kvm {
namespace reference {

std::vector<double> RotaryFrequencies(int64_t rotary_dim, double theta) {
  const int64_t n = rotary_dim / 2;
  std::vector<double> freqs(n, 1.0);
  for (int64_t p = 1; p < n; ++p) freqs[p] = std::pow(theta, -static_cast<double>(p) / (n - 1));
  return freqs;
}

std::vector<double> ApplyRotary(const std::vector<float>& x, const std::vector<double>& angles) {
  std::vector<double> y(x.begin(), x.end());
  for (size_t p = 0; p < angles.size(); ++p) {
    const double cos = std::cos(angles[p]), sin = std::sin(angles[p]);
    y[2 * p] = cos * x[2 * p] + sin * x[2 * p + 1];
    y[2 * p + 1] = cos * x[2 * p + 1] - sin * x[2 * p];
  }
  return y;
}

}  // namespace reference
}  // namespace kvm
