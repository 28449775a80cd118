#include "kvm/kernels/reference/elementwise.h"

#include <algorithm>
#include <cmath>

namespace kvm {
namespace reference {

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double Silu(double x) { return x == -INFINITY ? 0 : x * Sigmoid(x); }

double Softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

double OnePlusElu(double x) { return x > 0 ? 1 + x : std::exp(x); }

double SoftCap(double x, double cap) { return cap * std::tanh(x / cap); }

double Rwkv7Decay(double x) { return std::exp(-std::exp(-Softplus(-x) - 0.5)); }

}  // namespace reference
}  // namespace kvm
