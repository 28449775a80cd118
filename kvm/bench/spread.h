#ifndef KVM_BENCH_SPREAD_H_
#define KVM_BENCH_SPREAD_H_

#include <vector>

namespace kvm {

// What is said of repeated measurements: the median, and how far they lie apart.
struct Spread {
  double min = 0;
  double median = 0;  // of an even number, the mean of the two in the middle
  double max = 0;
};

// At least one sample.
Spread SpreadOf(std::vector<double> samples);

}  // namespace kvm

#endif  // KVM_BENCH_SPREAD_H_
