#include <cstdint>
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "kvm/kernels/bfloat16.h"
#include "kvm/kernels/cpu/slot_attention.h"

namespace kvm {
namespace {

constexpr int64_t kDim = 128;

// Arguments: queries, keys. One head, state rows only: every query sees every key.
template <typename Element>
void BM_SlotAttention(benchmark::State& state) {
  const int64_t num_queries = state.range(0);
  const int64_t num_keys = state.range(1);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> queries(num_queries * kDim);
  for (float& x : queries) x = normal(random);
  std::vector<Element> keys(KeyPanelElements(num_keys, kDim));
  std::vector<Element> values(num_keys * kDim);
  const auto element = [&] {
    if constexpr (sizeof(Element) == 2) {
      return ToBFloat16(normal(random));
    } else if constexpr (sizeof(Element) == 1) {
      return static_cast<Element>(random() % 255 - 127);
    } else {
      return normal(random);
    }
  };
  for (Element& x : keys) x = element();
  for (Element& x : values) x = element();
  std::vector<float> out(num_queries * kDim);

  KeyValueSegment segment;
  segment.keys = keys.data();
  segment.values = values.data();
  segment.dtype = sizeof(Element) == 2 ? DType::kBF16 : sizeof(Element) == 1 ? DType::kI8 : DType::kF32;
  const std::vector<float> scales(KeyPanelElements(num_keys, 1), 0.02f);
  segment.key_scales = segment.value_scales = sizeof(Element) == 1 ? scales.data() : nullptr;
  segment.count = num_keys;
  segment.is_state = true;
  AttentionHead head;
  head.queries = {queries.data(), num_queries, kDim};
  head.out = {out.data(), num_queries, kDim};
  head.segments = {&segment, 1};
  head.state_scale = 0.088f;
  ThreadPool pool(1);
  for (auto _ : state) {
    SlotAttention({&head, 1}, pool);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  const double flop = 4.0 * static_cast<double>(num_queries * num_keys * kDim);
  state.counters["FLOP/s"] = benchmark::Counter(flop, benchmark::Counter::kIsIterationInvariantRate);
  state.SetBytesProcessed(state.iterations() * num_keys * kDim * 2 * static_cast<int64_t>(sizeof(Element)));
}

BENCHMARK_TEMPLATE(BM_SlotAttention, float)->ArgsProduct({{256, 1}, {768, 4096}});
BENCHMARK_TEMPLATE(BM_SlotAttention, BFloat16)->ArgsProduct({{256, 1}, {768, 4096}});
BENCHMARK_TEMPLATE(BM_SlotAttention, int8_t)->ArgsProduct({{256, 1}, {768, 4096}});

}  // namespace
}  // namespace kvm
