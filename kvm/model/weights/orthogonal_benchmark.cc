#include <algorithm>
#include <cstdint>
#include <vector>

#include "benchmark/benchmark.h"
#include "kvm/kernels/matrix_view.h"
#include "kvm/kernels/thread_pool.h"
#include "kvm/model/weights/orthogonal.h"

namespace kvm {
namespace {

// Two passes of Gram–Schmidt over n vectors of m channels are 4·m·n² operations.
void BM_FillOrthogonal(benchmark::State& state) {
  const int64_t rows = state.range(0), cols = state.range(1);
  ThreadPool pool(static_cast<int>(state.range(2)));
  std::vector<float> matrix(static_cast<size_t>(rows * cols));
  for (auto _ : state) {
    FillOrthogonal(RandomStream(1, "m"), 1, MatrixView<float>(matrix.data(), rows, cols), pool);
    benchmark::DoNotOptimize(matrix.data());
  }
  const double flops = 4.0 * static_cast<double>(std::max(rows, cols)) * static_cast<double>(std::min(rows, cols)) *
                       static_cast<double>(std::min(rows, cols));
  state.counters["FLOP/s"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
  state.SetBytesProcessed(state.iterations() * rows * cols * static_cast<int64_t>(sizeof(float)));
}
BENCHMARK(BM_FillOrthogonal)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->Args({768, 768, 1})
    ->Args({768, 768, 2})
    ->Args({3072, 768, 2})
    ->Args({50304, 768, 2});

}  // namespace
}  // namespace kvm
