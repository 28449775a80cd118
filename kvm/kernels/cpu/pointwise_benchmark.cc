// What surrounds the products of a layer, on one thread: it reads and writes every element once, so bytes a second are
// what counts. Operations are those of the formulas, with an exponential, a logarithm, a division or a root as one.

#include <cstdint>
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "kvm/kernels/cpu/pointwise/elementwise.h"
#include "kvm/kernels/cpu/pointwise/norms.h"
#include "kvm/kernels/cpu/pointwise/rotary.h"
#include "kvm/kernels/cpu/pointwise/token_shift.h"
#include "kvm/kernels/cpu/recurrence/delta_gates.h"
#include "kvm/kernels/cpu/recurrence/wkv7.h"
#include "kvm/kernels/cpu/slot_update.h"

namespace kvm {
namespace {

constexpr int64_t kWidth = 768;

std::vector<float> Uniform(int64_t n) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> distribution(-1, 1);
  std::vector<float> x(n);
  for (float& e : x) e = distribution(random);
  return x;
}

// What kernels of any signature take: matrices [rows, kWidth], and one number a column.
struct Operands {
  MatrixView<float> y;
  MatrixView<const float> x, z;
  absl::Span<const float> column;
};

// Argument: rows. The kernel works on y, which begins anew each time: in place again and again numbers would leave
// their usual range. The copy costs as much as a kernel that does nothing.
void Run(benchmark::State& state, int64_t matrices, double flop, void (*kernel)(const Operands&)) {
  const int64_t rows = state.range(0);
  const std::vector<float> start = Uniform(rows * kWidth), column = Uniform(kWidth);
  std::vector<float> y(start.size());
  const Operands operands = {
      {y.data(), rows, kWidth}, {start.data(), rows, kWidth}, {start.data(), rows, kWidth}, column};
  for (auto _ : state) {
    y = start;
    kernel(operands);
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  const int64_t elements = rows * kWidth;
  state.counters["FLOP/s"] =
      benchmark::Counter(flop * static_cast<double>(elements), benchmark::Counter::kIsIterationInvariantRate);
  state.SetBytesProcessed(state.iterations() * elements * matrices * static_cast<int64_t>(sizeof(float)));
}

struct Kernel {
  const char* name;
  int64_t matrices;  // read and written
  double flop;       // an element
  void (*run)(const Operands&);
};

const Kernel kKernels[] = {
    {"Copy", 2, 0, [](const Operands&) {}},
    {"AddScaled", 3, 2, [](const Operands& o) { AddScaled(o.y, 0.5f, o.x); }},
    {"Blend", 3, 3, [](const Operands& o) { Blend(o.y, 0.5f, 0.5f, o.x); }},
    {"Multiply", 3, 1, [](const Operands& o) { Multiply(o.y, o.x); }},
    {"ReluSquared", 2, 2, [](const Operands& o) { ReluSquared(o.y); }},
    {"Tanh", 2, 4, [](const Operands& o) { Tanh(o.y); }},
    {"Sigmoid", 2, 3, [](const Operands& o) { Sigmoid(o.y); }},
    {"Silu", 2, 4, [](const Operands& o) { Silu(o.y); }},
    {"BiasedSigmoid", 2, 4, [](const Operands& o) { BiasedSigmoid(o.y, o.column); }},
    {"SigmoidBlend", 4, 7, [](const Operands& o) { SigmoidBlend(o.y, o.x, o.column, o.z); }},
    {"OnePlusElu", 2, 2, [](const Operands& o) { OnePlusElu(o.y); }},
    {"SoftCap", 2, 6, [](const Operands& o) { SoftCap(o.y, 30); }},
    {"SoftmaxWeights", 2, 3, [](const Operands& o) { SoftmaxWeights(o.y, 1, 0.5f); }},
    {"Rwkv7Decay", 2, 7, [](const Operands& o) { Rwkv7Decay(o.y, o.column); }},
    {"TokenShift", 2, 3, [](const Operands& o) { TokenShift(o.x, o.column, o.column, o.y); }},
    {"GroupNorm", 2, 8, [](const Operands& o) { GroupNorm(o.x, 12, o.column, o.column, kLayerNormEpsilon, o.y); }},
    {"HeadUnitLength", 2, 3, [](const Operands& o) { HeadUnitLength(o.x, 64, 1e-12f, o.y); }},
    {"MemoryKeys", 2, 8,
     [](const Operands& o) {
       // One head.
       MemoryKeys(o.x, 64, {o.column, o.column}, o.y);
     }},
    {"Wkv7Keys", 4, 7,
     [](const Operands& o) {
       // The two halves of the rows are k and what κ goes to.
       const int64_t half = o.y.rows / 2;
       Wkv7Keys(o.y.Rows(0, half), o.x.Rows(0, half), o.column, o.column, 64, o.y.Rows(half, half));
     }},
    {"Wkv7BonusAndGate", 6, 6, [](const Operands& o) { Wkv7BonusAndGate(o.y, o.x, o.x, o.z, o.column, 64, o.z); }},
    {"DeltaUnitLength", 2, 3, [](const Operands& o) { DeltaUnitLength(o.y, 64, 0.125f); }},
    {"GatedRmsNorm", 3, 5, [](const Operands& o) { GatedRmsNorm(o.y, o.column.subspan(0, 64), 1e-5f, o.x); }},
};

// Arguments: rows, rotary channels of heads of 128.
void BM_ApplyRotary(benchmark::State& state) {
  const int64_t rows = state.range(0), rotary = state.range(1);
  std::vector<float> x = Uniform(rows * kWidth), cos(rows * rotary / 2), sin(rows * rotary / 2);
  RotaryTable(RotaryFrequencies(rotary, 1e4), 0, DType::kF32, {cos.data(), rows, rotary / 2},
              {sin.data(), rows, rotary / 2});
  for (auto _ : state) {
    ApplyRotary({x.data(), rows, kWidth}, 128, {cos.data(), rows, rotary / 2}, {sin.data(), rows, rotary / 2});
    benchmark::DoNotOptimize(x.data());
    benchmark::ClobberMemory();
  }
  // Two products and a sum an element that turns, which is read and written.
  const int64_t elements = rows * kWidth / 128 * rotary;
  state.counters["FLOP/s"] =
      benchmark::Counter(3.0 * static_cast<double>(elements), benchmark::Counter::kIsIterationInvariantRate);
  state.SetBytesProcessed(state.iterations() * elements * 2 * static_cast<int64_t>(sizeof(float)));
}
BENCHMARK(BM_ApplyRotary)->Args({1, 64})->Args({256, 64});

// Argument: positions.
void BM_RotaryTable(benchmark::State& state) {
  constexpr int64_t kPairs = 32;
  const int64_t rows = state.range(0);
  const std::vector<float> freqs = RotaryFrequencies(2 * kPairs, 1e4);
  std::vector<float> cos(rows * kPairs), sin(rows * kPairs);
  for (auto _ : state) {
    RotaryTable(freqs, 30000, DType::kBF16, {cos.data(), rows, kPairs}, {sin.data(), rows, kPairs});
    benchmark::DoNotOptimize(cos.data());
    benchmark::ClobberMemory();
  }
  // A product, a cosine and a sine.
  state.counters["FLOP/s"] =
      benchmark::Counter(3.0 * static_cast<double>(rows * kPairs), benchmark::Counter::kIsIterationInvariantRate);
  state.SetBytesProcessed(state.iterations() * rows * kPairs * 2 * static_cast<int64_t>(sizeof(float)));
}
BENCHMARK(BM_RotaryTable)->Arg(1)->Arg(256);

}  // namespace
}  // namespace kvm

int main(int argc, char** argv) {
  for (const kvm::Kernel& kernel : kvm::kKernels) {
    benchmark::RegisterBenchmark(kernel.name, [&kernel](benchmark::State& state) {
      kvm::Run(state, kernel.matrices, kernel.flop, kernel.run);
    })->Arg(256);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
