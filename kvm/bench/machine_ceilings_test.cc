#include "kvm/bench/machine_ceilings.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/cpu/vectors/every_target.h"

namespace kvm {
namespace {

// Other processes may take the core or the memory away for most of a sample. So samples are taken in turn, and the best
// of each kind are compared; until they say what is expected, as more samples only bring the best nearer to what a
// machine can do. What no machine does stays out of reach.
constexpr int kMinSamples = 3;
constexpr int kMaxSamples = 100;

// The ratio of the best rates, sampled until it lies between `low` and `high`.
template <typename SampleA, typename SampleB>
double RatioOfBest(double low, double high, SampleA sample_a, SampleB sample_b) {
  double a = 0, b = 0;
  for (int i = 0; i < kMaxSamples; ++i) {
    a = std::max<double>(a, sample_a());
    b = std::max<double>(b, sample_b());
    if (i + 1 >= kMinSamples && a > low * b && a < high * b) break;
  }
  return a / b;
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Operations per second of one chain of products and sums, each of which waits for the one before it.
double SampleRateOfOneChain() {
  constexpr int64_t kSteps = 1 << 20;
  volatile float end = 1;
  float x = end;
  const auto start = std::chrono::steady_clock::now();
  for (int64_t step = 0; step < kSteps; ++step) x = x * 0.999f + 0.001f;
  end = x;
  return 2.0 * kSteps / SecondsSince(start);
}

// A chain gives a result every 8 cycles or so: 1/4 operation a cycle. Cores do 8 operations a cycle without fused
// multiply-adds on the narrowest vectors, and 64 with two units of the widest. Work that is optimized away, counted
// several times over or run in one chain falls out of this.
TEST(MachineCeilingsTest, MultiplyAddRateIsManyTimesThatOfOneChain) {
  ThreadPool pool(1);
  const double times = RatioOfBest(
      8, 800, [&] { return SampleMultiplyAddRate(pool); }, SampleRateOfOneChain);
  EXPECT_GT(times, 8);
  EXPECT_LT(times, 800);
}

TEST(MachineCeilingsTest, WiderVectorsDoMore) {
  ThreadPool pool(1);
  std::map<std::string, double> rates;
  std::string widest, narrowest;
  // At least twice as wide; the slack is for a core that is shared.
  constexpr double kTimes = 1.3;
  for (int i = 0; i < kMaxSamples && (i < kMinSamples || rates[widest] < kTimes * rates[narrowest]); ++i) {
    bool first = true;
    ForEveryTarget([&] {  // widest first
      if (first) widest = InstructionSet();
      first = false;
      narrowest = InstructionSet();
      rates[narrowest] = std::max(rates[narrowest], SampleMultiplyAddRate(pool));
    });
    if (rates.size() == 1) GTEST_SKIP() << "this machine has one instruction set";
  }
  EXPECT_GT(rates[widest], kTimes * rates[narrowest]) << widest << " and " << narrowest;
}

// Reading alone is faster than reading and writing, by what a core can keep under way at most.
TEST(MachineCeilingsTest, ReadRateIsNearThatOfACopy) {
  const std::vector<float> buffer(16 << 20, 1.0f);
  std::vector<float> copy(buffer.size(), 2.0f);
  const size_t bytes = buffer.size() * sizeof(float);
  ThreadPool pool(1);
  const auto sample_copy = [&] {
    const auto start = std::chrono::steady_clock::now();
    std::memcpy(copy.data(), buffer.data(), bytes);
    const double rate = static_cast<double>(bytes) / SecondsSince(start);
    volatile float used = copy[bytes / sizeof(float) / 2];
    static_cast<void>(used);
    return rate;
  };
  const double times = RatioOfBest(
      0.5, 8, [&] { return SampleReadRate(buffer, pool); }, sample_copy);
  EXPECT_GT(times, 0.5);
  EXPECT_LT(times, 8);
}

TEST(MachineCeilingsTest, TwoRunsAgreeWithinAFactor) {
  constexpr double kFactor = 2.5;
  const std::vector<float> buffer(16 << 20, 1.0f);
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads, /*oversubscribe=*/true);
    const auto multiply_adds = [&] { return SampleMultiplyAddRate(pool); };
    const auto reads = [&] { return SampleReadRate(buffer, pool); };
    for (const double ratio : {RatioOfBest(1 / kFactor, kFactor, multiply_adds, multiply_adds),
                               RatioOfBest(1 / kFactor, kFactor, reads, reads)}) {
      EXPECT_GT(ratio, 1 / kFactor) << threads;
      EXPECT_LT(ratio, kFactor) << threads;
    }
  }
}

TEST(MachineCeilingsTest, BuffersOfAnyLengthAreRead) {
  ThreadPool pool(2);
  for (const size_t n : {1, 127, 131072, 131073}) {
    EXPECT_GT(SampleReadRate(std::vector<float>(n, 1.0f), pool), 0) << n;
  }
}

TEST(MachineCeilingsTest, InstructionSetHasAName) { EXPECT_FALSE(InstructionSet().empty()); }

}  // namespace
}  // namespace kvm
