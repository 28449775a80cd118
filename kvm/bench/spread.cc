#include "kvm/bench/spread.h"

#include <algorithm>
#include <cassert>
#include <cstddef>

namespace kvm {

Spread SpreadOf(std::vector<double> samples) {
  assert(!samples.empty());
  std::sort(samples.begin(), samples.end());
  const size_t n = samples.size();
  return {samples.front(), (samples[(n - 1) / 2] + samples[n / 2]) / 2, samples.back()};
}

}  // namespace kvm
