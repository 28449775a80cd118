#include "kvm/kernels/reference/token_shift.h"

#include <cstddef>

namespace kvm {
namespace reference {

std::vector<double> TokenShift(const std::vector<float>& x, const std::vector<float>& previous,
                               const std::vector<float>& mix) {
  const size_t d = mix.size();
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double before = i < d ? previous[i] : x[i - d];
    y[i] = x[i] + mix[i % d] * (before - x[i]);
  }
  return y;
}

}  // namespace reference
}  // namespace kvm
