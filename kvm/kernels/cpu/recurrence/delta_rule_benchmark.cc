// One layer's worth of Gated DeltaNet and Kimi Delta Attention, on one thread: eight heads of 128 key and 128 value
// channels, whose columns lie side by side as in a layer.

#include <cstdint>
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "kvm/kernels/cpu/recurrence/delta_gates.h"
#include "kvm/kernels/cpu/recurrence/delta_rule.h"
#include "kvm/kernels/cpu/recurrence/short_convolution.h"

namespace kvm {
namespace {

constexpr int64_t kHeads = 8;
constexpr int64_t kDim = 128;
constexpr int64_t kChannels = kHeads * kDim;

std::vector<float> Uniform(int64_t n, float low, float high) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> distribution(low, high);
  std::vector<float> x(n);
  for (float& e : x) e = distribution(random);
  return x;
}

void SetRates(double flop, int64_t bytes, benchmark::State& state) {
  state.counters["FLOP/s"] = benchmark::Counter(flop, benchmark::Counter::kIsIterationInvariantRate);
  state.SetBytesProcessed(state.iterations() * bytes);
}

// Arguments: tokens; whether every key channel has a decay of its own.
void BM_DeltaRule(benchmark::State& state) {
  const int64_t n = state.range(0);
  const bool per_channel = state.range(1) != 0;
  const std::vector<float> q = Uniform(n * kChannels, -0.1f, 0.1f), k = q, v = Uniform(n * kChannels, -1, 1);
  const std::vector<float> decay = Uniform(n * kChannels, 0.9f, 1), beta = Uniform(n * kHeads, 0, 1);
  std::vector<float> memory(kHeads * kDim * kDim), out(n * kChannels);
  std::vector<DeltaRuleHead> heads;
  for (int64_t h = 0; h < kHeads; ++h) {
    const auto view = [&](const std::vector<float>& x) {
      return MatrixView<const float>(x.data(), n, kChannels).Cols(h * kDim, kDim);
    };
    heads.push_back({view(q), view(k), view(v), per_channel ? view(decay) : view(decay).Cols(0, 1),
                     MatrixView<const float>(beta.data(), n, kHeads).Cols(h, 1), memory.data() + h * kDim * kDim,
                     MatrixView<float>(out.data(), n, kChannels).Cols(h * kDim, kDim)});
  }
  ThreadPool pool(1);
  for (auto _ : state) {
    DeltaRule(heads, pool);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  // Per state element: 2 for Sᵀk, 3 for the update, 2 for Sᵀq. It is read twice and written once.
  const int64_t elements = n * kHeads * kDim * kDim;
  SetRates(7.0 * static_cast<double>(elements), elements * 3 * static_cast<int64_t>(sizeof(float)), state);
}

BENCHMARK(BM_DeltaRule)->Args({1, 0})->Args({1, 1})->Args({256, 0})->Args({256, 1});

// Argument: tokens.
void BM_ShortConvolution(benchmark::State& state) {
  constexpr int64_t kSize = 4;
  const int64_t n = state.range(0);
  const std::vector<float> u = Uniform(n * kChannels, -1, 1), taps = Uniform(kSize * kChannels, -1, 1);
  const std::vector<float> history((kSize - 1) * kChannels);
  std::vector<float> out(n * kChannels);
  for (auto _ : state) {
    ShortConvolution({u.data(), n, kChannels}, 0, n, {history.data(), kSize - 1, kChannels},
                     {{taps.data(), kSize, kChannels}, {}}, {out.data(), n, kChannels});
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  SetRates(2.0 * kSize * static_cast<double>(n * kChannels), n * kChannels * 2 * static_cast<int64_t>(sizeof(float)),
           state);
}

BENCHMARK(BM_ShortConvolution)->Arg(1)->Arg(256);

// Argument: tokens.
void BM_SoftplusDecay(benchmark::State& state) {
  const int64_t n = state.range(0);
  const std::vector<float> projections = Uniform(n * kChannels, -4, 4), rate = Uniform(kChannels, 1, 16);
  std::vector<float> y(n * kChannels);
  for (auto _ : state) {
    y = projections;
    SoftplusDecay({y.data(), n, kChannels}, rate, rate);
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  // A sum, a softplus of four, a product and an exponential.
  SetRates(7.0 * static_cast<double>(n * kChannels), n * kChannels * 2 * static_cast<int64_t>(sizeof(float)), state);
}

BENCHMARK(BM_SoftplusDecay)->Arg(256);

}  // namespace
}  // namespace kvm
