#include "kvm/kernels/reference/short_convolution.h"

#include <cstddef>

#include "kvm/kernels/reference/elementwise.h"

namespace kvm {
namespace reference {

std::vector<double> ShortConvolution(const std::vector<double>& history, const std::vector<double>& u,
                                     const std::vector<double>& taps, double bias) {
  std::vector<double> past = history;
  past.insert(past.end(), u.begin(), u.end());
  std::vector<double> out;
  for (size_t t = 0; t < u.size(); ++t) {
    double sum = bias;
    for (size_t j = 0; j < taps.size(); ++j) sum += taps[j] * past[t + j];
    out.push_back(Silu(sum));
  }
  return out;
}

}  // namespace reference
}  // namespace kvm
