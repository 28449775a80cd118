#include "kvm/bench/ceiling_meter.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <utility>

#include "kvm/bench/machine_ceilings.h"

namespace kvm {

CeilingMeter::CeilingMeter(std::vector<ThreadPool*> pools, const ColdMemory* memory)
    : pools_(std::move(pools)), memory_(memory), samples_(pools_.size()) {}

void CeilingMeter::Sample() {
  for (size_t i = 0; i < pools_.size(); ++i) {
    samples_[i].flop_rates.push_back(SampleMultiplyAddRate(*pools_[i]));
    samples_[i].read_rates.push_back(SampleReadRate(memory_->floats(), *pools_[i]));
  }
}

std::vector<Ceilings> CeilingMeter::Summary() const {
  std::vector<Ceilings> summary;
  for (size_t i = 0; i < pools_.size(); ++i) {
    summary.push_back({pools_[i]->num_threads(), SpreadOf(samples_[i].flop_rates), SpreadOf(samples_[i].read_rates)});
  }
  return summary;
}

const Ceilings& CeilingsOf(int threads, absl::Span<const Ceilings> all) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Ceilings& c) { return c.threads == threads; });
  assert(found != all.end());
  return *found;
}

}  // namespace kvm
