#include "kvm/bench/machine_ceilings.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

// Highway includes this very file once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvm/bench/machine_ceilings.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvm {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Chains side by side: latency times multiply-adds a cycle of common cores is 8 to 10, and these with their two factors
// still fit 16 registers.
constexpr int64_t kChains = 12;

// Runs `steps` multiply-adds in each chain and returns the operations that these were.
double RunMultiplyAdds(int64_t steps, float* result) {
  const D d;
  // Chains tend to a number near 1: no step is slow for being denormal or infinite.
  const V factor = hn::Set(d, 0.999f);
  const V term = hn::Set(d, 0.001f);
  V a0 = hn::Set(d, result[0]), a1 = hn::Add(a0, term), a2 = hn::Add(a1, term), a3 = hn::Add(a2, term);
  V a4 = hn::Add(a3, term), a5 = hn::Add(a4, term), a6 = hn::Add(a5, term), a7 = hn::Add(a6, term);
  V a8 = hn::Add(a7, term), a9 = hn::Add(a8, term), a10 = hn::Add(a9, term), a11 = hn::Add(a10, term);
  for (int64_t i = 0; i < steps; ++i) {
    a0 = hn::MulAdd(a0, factor, term);
    a1 = hn::MulAdd(a1, factor, term);
    a2 = hn::MulAdd(a2, factor, term);
    a3 = hn::MulAdd(a3, factor, term);
    a4 = hn::MulAdd(a4, factor, term);
    a5 = hn::MulAdd(a5, factor, term);
    a6 = hn::MulAdd(a6, factor, term);
    a7 = hn::MulAdd(a7, factor, term);
    a8 = hn::MulAdd(a8, factor, term);
    a9 = hn::MulAdd(a9, factor, term);
    a10 = hn::MulAdd(a10, factor, term);
    a11 = hn::MulAdd(a11, factor, term);
  }
  a0 = hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), hn::Add(hn::Add(a4, a5), hn::Add(a6, a7)));
  a0 = hn::Add(a0, hn::Add(hn::Add(a8, a9), hn::Add(a10, a11)));
  // Every lane counts, so that none of the work can be left out.
  *result = hn::GetLane(hn::SumOfLanes(d, a0));
  return 2.0 * static_cast<double>(steps) * static_cast<double>(kChains) * static_cast<double>(hn::Lanes(d));
}

// In four streams side by side: a single one does not keep as many lines on their way as a core can, and of more than
// these processors lose track.
float Sum(const float* x, int64_t n) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t stream = n / 4 / lanes * lanes;
  V a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0;
  for (int64_t i = 0; i < stream; i += lanes) {
    a0 = hn::Add(a0, hn::LoadU(d, x + i));
    a1 = hn::Add(a1, hn::LoadU(d, x + i + stream));
    a2 = hn::Add(a2, hn::LoadU(d, x + i + 2 * stream));
    a3 = hn::Add(a3, hn::LoadU(d, x + i + 3 * stream));
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a0, a1), hn::Add(a2, a3))));
  for (int64_t i = 4 * stream; i < n; ++i) sum += x[i];
  return sum;
}

const char* TargetInUse() { return hwy::TargetName(HWY_TARGET); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvm {

HWY_EXPORT(RunMultiplyAdds);
HWY_EXPORT(Sum);
HWY_EXPORT(TargetInUse);

namespace {

// What threads take at a time: enough of them that one which comes late holds up none, and large enough that taking
// one costs nothing.
constexpr int64_t kTasksPerThread = 64;
constexpr int64_t kStepsPerTask = 1 << 16;
constexpr int64_t kBlockFloats = 1 << 19;  // 2 MiB

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Keeps results from being optimized away.
void Use(const std::vector<float>& results) {
  volatile float sink = 0;
  for (const float result : results) sink = sink + result;
}

}  // namespace

double SampleMultiplyAddRate(ThreadPool& pool) {
  const int64_t tasks = kTasksPerThread * pool.num_threads();
  std::vector<double> operations(static_cast<size_t>(tasks));
  std::vector<float> results(operations.size(), 1.0f);
  const auto start = std::chrono::steady_clock::now();
  pool.ParallelFor(tasks, [&](int64_t i) {
    const size_t task = static_cast<size_t>(i);
    float result = results[task];
    operations[task] = HWY_DYNAMIC_DISPATCH(RunMultiplyAdds)(kStepsPerTask, &result);
    results[task] = result;
  });
  const double seconds = SecondsSince(start);
  Use(results);
  double total = 0;
  for (const double of_task : operations) total += of_task;
  return total / seconds;
}

double SampleReadRate(absl::Span<const float> buffer, ThreadPool& pool) {
  const int64_t n = static_cast<int64_t>(buffer.size());
  std::vector<float> results(static_cast<size_t>((n + kBlockFloats - 1) / kBlockFloats));
  const auto start = std::chrono::steady_clock::now();
  pool.ParallelForRanges(n, kBlockFloats, [&](int64_t begin, int64_t end) {
    results[static_cast<size_t>(begin / kBlockFloats)] = HWY_DYNAMIC_DISPATCH(Sum)(buffer.data() + begin, end - begin);
  });
  const double seconds = SecondsSince(start);
  Use(results);
  return static_cast<double>(n) * sizeof(float) / seconds;
}

std::string InstructionSet() { return HWY_DYNAMIC_DISPATCH(TargetInUse)(); }

}  // namespace kvm
#endif  // HWY_ONCE
