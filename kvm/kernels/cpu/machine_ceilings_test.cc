#include "kvm/kernels/cpu/machine_ceilings.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/cpu/every_target.h"

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

// Between what a core of 100 MHz without vectors does and ten times what any core does: work that is optimized away or
// counted wrongly falls out of it.
TEST(MachineCeilingsTest, MultiplyAddRateIsThatOfSomeCore) {
  ThreadPool pool(1);
  const double rate = BestMultiplyAddRate(pool);
  EXPECT_GT(rate, 1e8);
  EXPECT_LT(rate, 4e12);
}

TEST(MachineCeilingsTest, WiderVectorsDoMore) {
  ThreadPool pool(1);
  std::vector<double> rates;  // widest first
  ForEveryTarget([&] { rates.push_back(BestMultiplyAddRate(pool)); });
  // The slack is for a core that is shared.
  EXPECT_GT(rates.front(), 0.5 * rates.back());
}

TEST(MachineCeilingsTest, ReadRateIsThatOfSomeMemory) {
  const std::vector<float> buffer(16 << 20, 1.0f);
  ThreadPool pool(1);
  const double rate = BestReadRate(buffer, pool);
  EXPECT_GT(rate, 1e7);
  EXPECT_LT(rate, 1e13);
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
