#ifndef KVM_BENCH_INTERLEAVE_H_
#define KVM_BENCH_INTERLEAVE_H_

// Timings that can be compared with one another on a machine that does other work as well and changes its clock: all
// cases are run in turn, round after round, so that what disturbs one round disturbs all cases alike.

#include <functional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kvm/bench/bench_hooks.h"

namespace kvm {

struct InterleaveOptions {
  int rounds = 5;
  // A case is run as often within a round as fills this time, and at least once.
  double min_seconds = 0.01;
};

// Runs each case once to warm up (and to see how long it takes), then all of them `rounds` times in turn, and before
// each round `before_round`. Returns, for each case, the seconds of one run in each round.
absl::StatusOr<std::vector<std::vector<double>>> TimeInterleaved(absl::Span<const std::function<void()>> cases,
                                                                 const InterleaveOptions& options,
                                                                 absl::FunctionRef<void()> before_round,
                                                                 const BenchHooks& hooks);

}  // namespace kvm

#endif  // KVM_BENCH_INTERLEAVE_H_
