#include <cstdint>
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "kvm/kernels/cpu/slot_update.h"
#include "kvm/kernels/key_value.h"
#include "kvm/kernels/thread_pool.h"

namespace kvm {
namespace {

constexpr int64_t kDim = 128;

std::vector<float> Normal(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& e : x) e = normal(random);
  return x;
}

// Arguments: tokens of the overflow chunk, state rows. No appends, so that every iteration does the same work.
void BM_RouteAndApply(benchmark::State& state) {
  const int64_t num_tokens = state.range(0);
  const int64_t num_rows = state.range(1);
  std::vector<float> key_sums(num_rows * kDim);
  std::vector<float> value_sums(num_rows * kDim);
  std::vector<float> radii(num_rows);
  std::vector<float> readout_keys(KeyPanelElements(num_rows, kDim));
  std::vector<float> readout_values(num_rows * kDim);
  const std::vector<float> keys = Normal(num_tokens * kDim, 3);
  const std::vector<float> values = Normal(num_tokens * kDim, 4);
  const std::vector<float> weight(kDim, 1), bias(kDim, 0);

  SlotRows rows;
  rows.capacity = num_rows;
  rows.qk_dim = rows.v_dim = kDim;
  rows.key_sums = key_sums.data();
  rows.value_sums = value_sums.data();
  rows.radii = radii.data();
  rows.readout_keys = readout_keys.data();
  rows.readout_values = readout_values.data();
  const std::vector<float> first_keys = Normal(num_rows * kDim, 1), first_values = Normal(num_rows * kDim, 2);
  SlotTokens first;
  first.keys = {first_keys.data(), num_rows, kDim};
  first.values = {first_values.data(), num_rows, kDim};
  SeedRows(first, /*gated=*/false, {weight, bias}, ValueReadout::kRadius, rows);
  SlotTokens tokens;
  tokens.keys = {keys.data(), num_tokens, kDim};
  tokens.values = {values.data(), num_tokens, kDim};
  SlotUpdateOptions options;
  options.num_sinks = 1;
  ThreadPool pool(1);
  SlotUpdateHead head = {tokens, options, {weight, bias}, rows};
  for (auto _ : state) {
    ApplyRoutes({&head, 1}, RouteTokens({&head, 1}, pool.memory(), pool), pool);
  }
  const double flop = 2.0 * static_cast<double>(num_tokens * num_rows * kDim);
  state.counters["FLOP/s"] = benchmark::Counter(flop, benchmark::Counter::kIsIterationInvariantRate);
  state.SetBytesProcessed(state.iterations() * num_rows * kDim * static_cast<int64_t>(sizeof(float)));
}

BENCHMARK(BM_RouteAndApply)->Args({256, 256})->Args({256, 2896});

}  // namespace
}  // namespace kvm
