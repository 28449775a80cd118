#include <cstdint>
#include <vector>

#include "benchmark/benchmark.h"
#include "kvm/kernels/cpu/pointwise/norms.h"

namespace kvm {
namespace {

// `flops` per element.
void SetRates(benchmark::State& state, int64_t elements, double flops) {
  state.SetBytesProcessed(state.iterations() * elements * 2 * static_cast<int64_t>(sizeof(float)));
  state.counters["FLOP/s"] = benchmark::Counter(flops * elements, benchmark::Counter::kIsIterationInvariantRate);
}

// Arguments: rows, columns.
void BM_LayerNorm(benchmark::State& state) {
  const int64_t rows = state.range(0), cols = state.range(1);
  const std::vector<float> x(rows * cols, 0.5f), weight(cols, 1.0f), bias(cols, 0.0f);
  std::vector<float> out(rows * cols);
  for (auto _ : state) {
    LayerNorm({x.data(), rows, cols}, weight, bias, kLayerNormEpsilon, {out.data(), rows, cols});
    benchmark::DoNotOptimize(out.data());
  }
  SetRates(state, rows * cols, 8);
}
BENCHMARK(BM_LayerNorm)->Args({1, 768})->Args({64, 768})->Args({64, 2048});

// Arguments: rows, heads, columns of a head.
void BM_HeadLayerNorm(benchmark::State& state) {
  const int64_t rows = state.range(0), dim = state.range(2), cols = state.range(1) * dim;
  const std::vector<float> x(rows * cols, 0.5f), weight(dim, 1.0f), bias(dim, 0.0f);
  std::vector<float> out(rows * cols);
  for (auto _ : state) {
    HeadLayerNorm({x.data(), rows, cols}, weight, bias, kLayerNormEpsilon, {out.data(), rows, cols});
    benchmark::DoNotOptimize(out.data());
  }
  SetRates(state, rows * cols, 8);
}
BENCHMARK(BM_HeadLayerNorm)->Args({1, 12, 64})->Args({64, 12, 64})->Args({64, 6, 128});

}  // namespace
}  // namespace kvm
