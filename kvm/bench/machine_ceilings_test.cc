#include "kvm/bench/machine_ceilings.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/cpu/vectors/every_target.h"

namespace kvm {
namespace {

// Another process may take the core away for most of a sample, so the best of some is what is looked at.
constexpr int kSamples = 5;

double BestMultiplyAddRate(ThreadPool& pool) {
  double best = 0;
  for (int i = 0; i < kSamples; ++i) best = std::max(best, SampleMultiplyAddRate(pool));
  return best;
}

double BestReadRate(absl::Span<const float> buffer, ThreadPool& pool) {
  double best = 0;
  for (int i = 0; i < kSamples; ++i) best = std::max(best, SampleReadRate(buffer, pool));
  return best;
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Operations per second of one chain of products and sums, each of which waits for the one before it.
double BestRateOfOneChain() {
  constexpr int64_t kSteps = 1 << 21;
  double best = 0;
  for (int i = 0; i < kSamples; ++i) {
    volatile float first = 1;
    float x = first;
    const auto start = std::chrono::steady_clock::now();
    for (int64_t step = 0; step < kSteps; ++step) x = x * 0.999f + 0.001f;
    first = x;
    best = std::max(best, 2.0 * kSteps / SecondsSince(start));
  }
  return best;
}

// Bytes per second that are copied.
double BestCopyRate(const std::vector<float>& buffer) {
  std::vector<float> copy(buffer.size(), 2.0f);
  const size_t bytes = buffer.size() * sizeof(float);
  double best = 0;
  for (int i = 0; i < kSamples; ++i) {
    const auto start = std::chrono::steady_clock::now();
    std::memcpy(copy.data(), buffer.data(), bytes);
    best = std::max(best, static_cast<double>(bytes) / SecondsSince(start));
    volatile float used = copy[static_cast<size_t>(i)];
    static_cast<void>(used);
  }
  return best;
}

// A chain gives a result every 8 cycles or so: 1/4 operation a cycle. Cores do 8 operations a cycle without fused
// multiply-adds on the narrowest vectors, and 64 with two units of the widest. Work that is optimized away, counted
// twice over or run in one chain falls out of this.
TEST(MachineCeilingsTest, MultiplyAddRateIsManyTimesThatOfOneChain) {
  ThreadPool pool(1);
  const double times = BestMultiplyAddRate(pool) / BestRateOfOneChain();
  EXPECT_GT(times, 8);
  EXPECT_LT(times, 800);
}

TEST(MachineCeilingsTest, WiderVectorsDoMore) {
  ThreadPool pool(1);
  std::vector<double> rates;  // widest first
  ForEveryTarget([&] { rates.push_back(BestMultiplyAddRate(pool)); });
  if (rates.size() == 1) GTEST_SKIP() << "this machine has one instruction set";
  // At least twice as wide; the slack is for a core that is shared.
  EXPECT_GT(rates.front(), 1.3 * rates.back());
}

// Reading alone is faster than reading and writing, by what a core can keep under way at most.
TEST(MachineCeilingsTest, ReadRateIsNearThatOfACopy) {
  const std::vector<float> buffer(16 << 20, 1.0f);
  ThreadPool pool(1);
  const double times = BestReadRate(buffer, pool) / BestCopyRate(buffer);
  EXPECT_GT(times, 0.5);
  EXPECT_LT(times, 8);
}

TEST(MachineCeilingsTest, TwoRunsAgreeWithinAFactor) {
  constexpr double kFactor = 4;
  const std::vector<float> buffer(16 << 20, 1.0f);
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads, /*oversubscribe=*/true);
    const double multiply_adds = BestMultiplyAddRate(pool) / BestMultiplyAddRate(pool);
    EXPECT_GT(multiply_adds, 1 / kFactor) << threads;
    EXPECT_LT(multiply_adds, kFactor) << threads;
    const double reads = BestReadRate(buffer, pool) / BestReadRate(buffer, pool);
    EXPECT_GT(reads, 1 / kFactor) << threads;
    EXPECT_LT(reads, kFactor) << threads;
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
