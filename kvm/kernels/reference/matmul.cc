#include "kvm/kernels/reference/matmul.h"

namespace kvm {
namespace reference {

std::vector<double> MatMul(const std::vector<float>& x, const std::vector<float>& weight, int64_t rows, int64_t inputs,
                           int64_t outputs) {
  std::vector<double> y(rows * outputs, 0.0);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < outputs; ++o) {
      for (int64_t i = 0; i < inputs; ++i) y[r * outputs + o] += double{x[r * inputs + i]} * weight[o * inputs + i];
    }
  }
  return y;
}

}  // namespace reference
}  // namespace kvm
