#include <cstdint>
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "kvm/kernels/cpu/recurrence/wkv7.h"

namespace kvm {
namespace {

constexpr int64_t kHeads = 12;
constexpr int64_t kDim = 64;

// Argument: tokens. Twelve heads of 64, one thread, columns of heads side by side as in a layer.
void BM_Wkv7(benchmark::State& state) {
  const int64_t n = state.range(0);
  const int64_t d = kHeads * kDim;
  std::mt19937 random(1);
  const auto uniform = [&](float low, float high) {
    std::uniform_real_distribution<float> distribution(low, high);
    std::vector<float> x(n * d);
    for (float& e : x) e = distribution(random);
    return x;
  };
  const std::vector<float> r = uniform(-1, 1), w = uniform(0.55f, 0.999f), k = uniform(-1, 1), v = uniform(-1, 1);
  const std::vector<float> kappa = uniform(-0.2f, 0.2f), a = uniform(0, 1);
  std::vector<float> memory(kHeads * kDim * kDim), out(n * d);
  std::vector<Wkv7Head> heads;
  for (int64_t h = 0; h < kHeads; ++h) {
    const auto view = [&](const std::vector<float>& x) {
      return MatrixView<const float>(x.data(), n, d).Cols(h * kDim, kDim);
    };
    heads.push_back({view(r), view(w), view(k), view(v), view(kappa), view(a), memory.data() + h * kDim * kDim,
                     MatrixView<float>(out.data(), n, d).Cols(h * kDim, kDim)});
  }
  ThreadPool pool(1);
  for (auto _ : state) {
    Wkv7(heads, pool);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  // Per state element: 2 for κᵀS, 5 for the update, 2 for rᵀS.
  const double flop = 9.0 * static_cast<double>(n * kHeads * kDim * kDim);
  state.counters["FLOP/s"] = benchmark::Counter(flop, benchmark::Counter::kIsIterationInvariantRate);
  // The state is read twice and written once a token.
  state.SetBytesProcessed(state.iterations() * n * kHeads * kDim * kDim * 3 * static_cast<int64_t>(sizeof(float)));
}

BENCHMARK(BM_Wkv7)->Arg(1)->Arg(256);

}  // namespace
}  // namespace kvm
