#include <cstdint>
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "kvm/kernels/cpu/ovq_update.h"
#include "kvm/kernels/key_value.h"

namespace kvm {
namespace {

constexpr int64_t kDim = 128;

std::vector<float> Normal(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.1f);
  std::vector<float> x(n);
  for (float& e : x) e = normal(random);
  return x;
}

// Arguments: tokens of a chunk, centroids. None are founded, so that every iteration does the same work.
void BM_UpdateDictionary(benchmark::State& state) {
  const int64_t num_tokens = state.range(0);
  const int64_t num_centroids = state.range(1);
  std::vector<float> keys = Normal(KeyPanelElements(num_centroids, kDim), 1);
  std::vector<float> values = Normal(num_centroids * kDim, 2);
  std::vector<float> counts(num_centroids, 1), log_counts(num_centroids);
  const std::vector<float> token_keys = Normal(num_tokens * kDim, 3);
  const std::vector<float> token_values = Normal(num_tokens * kDim, 4);
  OvqDictionary dictionary;
  dictionary.count = dictionary.capacity = num_centroids;
  dictionary.dim = kDim;
  dictionary.keys = keys.data();
  dictionary.values = values.data();
  dictionary.counts = counts.data();
  dictionary.log_counts = log_counts.data();
  for (auto _ : state) {
    benchmark::DoNotOptimize(UpdateDictionary({token_keys.data(), num_tokens, kDim},
                                              {token_values.data(), num_tokens, kDim}, {}, dictionary));
  }
  const double flop = 2.0 * static_cast<double>(num_tokens * num_centroids * kDim);
  state.counters["FLOP/s"] = benchmark::Counter(flop, benchmark::Counter::kIsIterationInvariantRate);
  state.SetBytesProcessed(state.iterations() * num_centroids * kDim * static_cast<int64_t>(sizeof(float)));
}

BENCHMARK(BM_UpdateDictionary)->Args({128, 256})->Args({128, 2048});

}  // namespace
}  // namespace kvm
