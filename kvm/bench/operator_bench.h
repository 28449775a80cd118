#ifndef KVM_BENCH_OPERATOR_BENCH_H_
#define KVM_BENCH_OPERATOR_BENCH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kvm/bench/bench_hooks.h"
#include "kvm/bench/ceiling_meter.h"
#include "kvm/bench/operator_cases.h"
#include "kvm/bench/spread.h"
#include "kvm/kernels/thread_pool.h"

namespace kvm {

struct OperatorBenchOptions {
  OperatorSizes sizes;
  int rounds = 5;
  double min_seconds = 0.01;  // of a case within a round
  // That weights and rows of single tokens come from, and that reads are measured over; more where a matrix is larger.
  int64_t memory_bytes = int64_t{512} << 20;
};

struct OperatorResult {
  std::string kernel;
  std::string what;
  int threads = 0;
  Spread seconds;  // of one run
  double flop = 0;
  double bytes = 0;
  Bound bound = Bound::kMultiplyAdds;
  double share = 0;  // of the bound's rate with as many threads: medians by medians
  // Of the time of the attention of the same chunk: for the update of its rows.
  std::optional<double> share_of_attention;
};

struct OperatorReport {
  std::vector<Ceilings> ceilings;
  std::vector<OperatorResult> results;  // thread count by thread count
};

// What the cases' times with one number of threads say beside its ceilings. Among the cases are one is_matmul_peak and,
// if any is_chunk_update, one is_chunk_attention.
std::vector<OperatorResult> JudgeOperators(absl::Span<const OperatorCase> cases, absl::Span<const Spread> seconds,
                                           const Ceilings& ceilings);

// Times all operator cases with each pool, ceilings among them in turn. CancelledError when the hooks say so.
absl::StatusOr<OperatorReport> BenchOperators(const OperatorBenchOptions& options, absl::Span<ThreadPool* const> pools,
                                              const BenchHooks& hooks);

}  // namespace kvm

#endif  // KVM_BENCH_OPERATOR_BENCH_H_
