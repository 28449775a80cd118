#include <cstdint>
#include <vector>

#include "benchmark/benchmark.h"
#include "kvm/kernels/cpu/matmul.h"

namespace kvm {
namespace {

// Arguments: rows, inputs, outputs, threads.
void Run(benchmark::State& state, DType storage) {
  const int64_t rows = state.range(0), inputs = state.range(1), outputs = state.range(2);
  ThreadPool pool(static_cast<int>(state.range(3)));
  const std::vector<float> weight(inputs * outputs, 0.01f), x(rows * inputs, 0.5f);
  std::vector<float> out(rows * outputs);
  const PackedMatrix packed = PackedMatrix::Pack({DType::kF32, {outputs, inputs}, weight.data()}, storage);
  for (auto _ : state) {
    MatMul({x.data(), rows, inputs}, packed, {out.data(), rows, outputs}, pool);
    benchmark::DoNotOptimize(out.data());
  }
  // Bytes of weights as they are stored: the bandwidth where one row has to read them all from memory.
  state.SetBytesProcessed(state.iterations() * (packed.byte_size() + 4 * rows * (inputs + outputs)));
  state.counters["weights/s"] =
      benchmark::Counter(1.0 * inputs * outputs, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["FLOP/s"] =
      benchmark::Counter(2.0 * rows * inputs * outputs, benchmark::Counter::kIsIterationInvariantRate);
}

void BM_MatMulF32(benchmark::State& state) { Run(state, DType::kF32); }
void BM_MatMulBF16(benchmark::State& state) { Run(state, DType::kBF16); }
void BM_MatMulInt8(benchmark::State& state) { Run(state, DType::kI8); }

void Sizes(benchmark::internal::Benchmark* b) {
  b->UseRealTime();
  b->ArgNames({"rows", "inputs", "outputs", "threads"});
  for (int64_t threads : {1, 2}) {
    for (int64_t rows : {1, 4, 8, 32, 256}) {
      b->Args({rows, 768, 3072, threads});
      b->Args({rows, 3072, 768, threads});
      b->Args({rows, 768, 768, threads});
    }
    // Decoding: from 57 MB up, so that every form comes from memory.
    b->Args({1, 768, 50304, threads});
    b->Args({1, 1024, 131072, threads});
  }
}
BENCHMARK(BM_MatMulF32)->Apply(Sizes);
BENCHMARK(BM_MatMulBF16)->Apply(Sizes);
BENCHMARK(BM_MatMulInt8)->Apply(Sizes);

}  // namespace
}  // namespace kvm
