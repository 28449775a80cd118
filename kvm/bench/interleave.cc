#include "kvm/bench/interleave.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace kvm {

absl::StatusOr<std::vector<std::vector<double>>> TimeInterleaved(absl::Span<const std::function<void()>> cases,
                                                                 const InterleaveOptions& options,
                                                                 absl::FunctionRef<void()> before_round,
                                                                 const BenchHooks& hooks) {
  const int64_t total = static_cast<int64_t>(cases.size()) * (options.rounds + 1);
  int64_t done = 0;
  std::vector<int64_t> runs(cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    if (hooks.cancelled()) return BenchCancelled();
    const double start = Now();
    cases[i]();
    const double seconds = std::max(Now() - start, 1e-7);
    runs[i] = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(options.min_seconds / seconds)));
    hooks.progress("timing", "cases", ++done, total);
  }
  std::vector<std::vector<double>> samples(cases.size());
  for (int round = 0; round < options.rounds; ++round) {
    before_round();
    for (size_t i = 0; i < cases.size(); ++i) {
      if (hooks.cancelled()) return BenchCancelled();
      const double start = Now();
      for (int64_t run = 0; run < runs[i]; ++run) cases[i]();
      samples[i].push_back((Now() - start) / static_cast<double>(runs[i]));
      hooks.progress("timing", "cases", ++done, total);
    }
  }
  return samples;
}

}  // namespace kvm
