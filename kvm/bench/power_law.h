#ifndef KVM_BENCH_POWER_LAW_H_
#define KVM_BENCH_POWER_LAW_H_

#include <optional>

#include "absl/types/span.h"

namespace kvm {

struct XY {
  double x = 0;
  double y = 0;
};

// The exponent a of y = c·x^a that fits best: the slope of the least squares line through (log x, log y). Points with
// x > 0 and y > 0. None unless there are at least two different x.
std::optional<double> FitExponent(absl::Span<const XY> points);

}  // namespace kvm

#endif  // KVM_BENCH_POWER_LAW_H_
