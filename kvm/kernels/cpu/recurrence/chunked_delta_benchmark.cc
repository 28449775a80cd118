#include <cstdint>
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "kvm/kernels/cpu/recurrence/chunked_delta.h"
#include "kvm/kernels/cpu/recurrence/delta_rule.h"
#include "kvm/kernels/cpu/recurrence/wkv7.h"

namespace kvm {
namespace {

std::vector<float> Uniform(int64_t n, float low, float high) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> distribution(low, high);
  std::vector<float> x(n);
  for (float& e : x) e = distribution(random);
  return x;
}

// Heads side by side as in a layer, one thread. Every kernel is charged the operations of the step form, so that their
// FLOP/s compare as their speeds do.
void Report(benchmark::State& state, int64_t state_elements, double flop_per_element) {
  const int64_t n = state.range(0);
  state.counters["FLOP/s"] = benchmark::Counter(flop_per_element * static_cast<double>(n * state_elements),
                                                benchmark::Counter::kIsIterationInvariantRate);
  state.SetBytesProcessed(state.iterations() * n * state_elements * 3 * static_cast<int64_t>(sizeof(float)));
}

// Argument: tokens. Twelve heads of 64.
void RunWkv7(benchmark::State& state, void (*kernel)(absl::Span<const Wkv7Head>, ThreadPool&)) {
  constexpr int64_t kHeads = 12, kDim = 64, kWidth = kHeads * kDim;
  const int64_t n = state.range(0);
  const std::vector<float> r = Uniform(n * kWidth, -1, 1), w = Uniform(n * kWidth, 0.55f, 0.999f);
  const std::vector<float> k = Uniform(n * kWidth, -1, 1), v = Uniform(n * kWidth, -1, 1);
  const std::vector<float> kappa = Uniform(n * kWidth, -0.2f, 0.2f), a = Uniform(n * kWidth, 0, 1);
  std::vector<float> memory(kHeads * kDim * kDim), out(n * kWidth);
  std::vector<Wkv7Head> heads;
  for (int64_t h = 0; h < kHeads; ++h) {
    const auto view = [&](const std::vector<float>& x) {
      return MatrixView<const float>(x.data(), n, kWidth).Cols(h * kDim, kDim);
    };
    heads.push_back({view(r), view(w), view(k), view(v), view(kappa), view(a), memory.data() + h * kDim * kDim,
                     MatrixView<float>(out.data(), n, kWidth).Cols(h * kDim, kDim)});
  }
  ThreadPool pool(1);
  for (auto _ : state) {
    kernel(heads, pool);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  // Per state element: 2 for κᵀS, 5 for the update, 2 for rᵀS.
  Report(state, kHeads * kDim * kDim, 9);
}

void BM_Wkv7Steps(benchmark::State& state) { RunWkv7(state, Wkv7); }
void BM_Wkv7Chunks(benchmark::State& state) { RunWkv7(state, ChunkedWkv7); }

// Arguments: tokens, key and value channels of a head, and whether each key channel has a decay of its own.
void RunDeltaRule(benchmark::State& state, void (*kernel)(absl::Span<const DeltaRuleHead>, ThreadPool&)) {
  constexpr int64_t kHeads = 6;
  const int64_t n = state.range(0), keys = state.range(1), values = state.range(2);
  const int64_t decays = state.range(3) != 0 ? keys : 1;
  const std::vector<float> q = Uniform(n * kHeads * keys, -1, 1), k = Uniform(n * kHeads * keys, -0.15f, 0.15f);
  const std::vector<float> v = Uniform(n * kHeads * values, -1, 1), beta = Uniform(n * kHeads, 0, 1);
  const std::vector<float> decay = Uniform(n * kHeads * decays, 0.55f, 0.999f);
  std::vector<float> memory(kHeads * keys * values), out(n * kHeads * values);
  std::vector<DeltaRuleHead> heads;
  for (int64_t h = 0; h < kHeads; ++h) {
    const auto view = [&](const std::vector<float>& x, int64_t dim) {
      return MatrixView<const float>(x.data(), n, kHeads * dim).Cols(h * dim, dim);
    };
    heads.push_back({view(q, keys), view(k, keys), view(v, values), view(decay, decays), view(beta, 1),
                     memory.data() + h * keys * values,
                     MatrixView<float>(out.data(), n, kHeads * values).Cols(h * values, values)});
  }
  ThreadPool pool(1);
  for (auto _ : state) {
    kernel(heads, pool);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  // Per state element: 1 for the decay and 2 each for Sᵀk, the update and Sᵀq.
  Report(state, kHeads * keys * values, 7);
}

void BM_DeltaRuleSteps(benchmark::State& state) { RunDeltaRule(state, DeltaRule); }
void BM_DeltaRuleChunks(benchmark::State& state) { RunDeltaRule(state, ChunkedDeltaRule); }

BENCHMARK(BM_Wkv7Steps)->Arg(16)->Arg(64)->Arg(512);
BENCHMARK(BM_Wkv7Chunks)->Arg(16)->Arg(64)->Arg(512);

void DeltaRuleSizes(benchmark::internal::Benchmark* benchmark) {
  for (int64_t n : {16, 64, 512}) benchmark->Args({n, 128, 128, 1})->Args({n, 128, 256, 0});
}
BENCHMARK(BM_DeltaRuleSteps)->Apply(DeltaRuleSizes);
BENCHMARK(BM_DeltaRuleChunks)->Apply(DeltaRuleSizes);

}  // namespace
}  // namespace kvm
