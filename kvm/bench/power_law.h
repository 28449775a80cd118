#ifndef KVM_BENCH_POWER_LAW_H_
#define KVM_BENCH_POWER_LAW_H_

#include "absl/types/span.h"

namespace kvm {

struct XY {
  double x = 0;
  double y = 0;
};

// The exponent a of y = c·x^a that fits best: the slope of the least squares line through (log x, log y). Points with
// x > 0 and y > 0, of which there are at least two different x; 0 when there are not.
double FitExponent(absl::Span<const XY> points);

}  // namespace kvm

#endif  // KVM_BENCH_POWER_LAW_H_
