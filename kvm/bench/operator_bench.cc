#include "kvm/bench/operator_bench.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>

#include "kvm/base/status_macros.h"
#include "kvm/bench/cold_memory.h"
#include "kvm/bench/interleave.h"

namespace kvm {
namespace {

// Rates that cases with one number of threads are compared with.
struct Peaks {
  double flop_rate = 0;
  double read_rate = 0;
  double matmul_rate = 0;
  double attention_seconds = 0;
};

double Share(const OperatorResult& result, const Peaks& peaks) {
  const double flop_rate = result.flop / result.seconds.median;
  switch (result.bound) {
    case Bound::kMultiplyAdds:
      return flop_rate / peaks.flop_rate;
    case Bound::kReads:
      return result.bytes / result.seconds.median / peaks.read_rate;
    case Bound::kMatMul:
      return flop_rate / peaks.matmul_rate;
  }
  return 0;
}

}  // namespace

std::vector<OperatorResult> JudgeOperators(absl::Span<const OperatorCase> cases, absl::Span<const Spread> seconds,
                                           const Ceilings& ceilings) {
  Peaks peaks;
  peaks.flop_rate = ceilings.flop_rate.median;
  peaks.read_rate = ceilings.read_rate.median;
  for (size_t i = 0; i < cases.size(); ++i) {
    if (cases[i].is_matmul_peak) peaks.matmul_rate = cases[i].flop / seconds[i].median;
    if (cases[i].is_chunk_attention) peaks.attention_seconds = seconds[i].median;
  }
  std::vector<OperatorResult> results;
  for (size_t i = 0; i < cases.size(); ++i) {
    const OperatorCase& c = cases[i];
    OperatorResult result;
    result.kernel = c.kernel;
    result.what = c.what;
    result.threads = ceilings.threads;
    result.seconds = seconds[i];
    result.flop = c.flop;
    result.bytes = c.bytes;
    result.bound = c.bound;
    result.share = Share(result, peaks);
    if (c.is_chunk_update) result.share_of_attention = seconds[i].median / peaks.attention_seconds;
    results.push_back(result);
  }
  return results;
}

absl::StatusOr<OperatorReport> BenchOperators(const OperatorBenchOptions& options, absl::Span<ThreadPool* const> pools,
                                              const BenchHooks& hooks) {
  const ColdMemory memory(std::max(options.memory_bytes, MinColdBytes(options.sizes)));
  const std::vector<OperatorCase> cases = OperatorCases(options.sizes, memory);
  std::vector<std::function<void()>> runs;
  for (ThreadPool* pool : pools) {
    for (const OperatorCase& c : cases) {
      runs.push_back([&c, pool] { c.run(*pool); });
    }
  }
  CeilingMeter meter({pools.begin(), pools.end()}, &memory);
  InterleaveOptions interleave;
  interleave.rounds = options.rounds;
  interleave.min_seconds = options.min_seconds;
  ASSIGN_OR_RETURN(const std::vector<std::vector<double>> samples,
                   TimeInterleaved(
                       runs, interleave, [&] { meter.Sample(); }, hooks));

  OperatorReport report;
  report.ceilings = meter.Summary();
  for (size_t p = 0; p < pools.size(); ++p) {
    std::vector<Spread> seconds;
    for (size_t i = 0; i < cases.size(); ++i) seconds.push_back(SpreadOf(samples[p * cases.size() + i]));
    for (OperatorResult& result : JudgeOperators(cases, seconds, report.ceilings[p])) {
      report.results.push_back(std::move(result));
    }
  }
  return report;
}

}  // namespace kvm
