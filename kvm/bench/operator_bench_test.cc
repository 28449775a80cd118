#include "kvm/bench/operator_bench.h"

#include <algorithm>
#include <set>

#include "gtest/gtest.h"

namespace kvm {
namespace {

OperatorBenchOptions Small() {
  OperatorBenchOptions options;
  options.sizes.width = 64;
  options.sizes.mlp_width = 96;
  options.sizes.vocab = 100;
  options.sizes.heads = 2;
  options.sizes.chunk = 8;
  options.sizes.rows = 33;
  options.sizes.centroids = 20;
  options.sizes.ovq_chunk = 4;
  options.rounds = 2;
  options.min_seconds = 0;
  options.memory_bytes = 1;
  return options;
}

TEST(OperatorBenchTest, EveryKernelHasARateAndAShare) {
  ThreadPool one(1), two(2);
  const absl::StatusOr<OperatorReport> report = BenchOperators(Small(), {&one, &two}, {});
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->ceilings.size(), 2u);
  std::set<std::string> kernels;
  int updates = 0;
  for (const OperatorResult& result : report->results) {
    kernels.insert(result.kernel);
    EXPECT_GT(result.seconds.min, 0) << result.what;
    EXPECT_GT(result.flop, 0) << result.what;
    EXPECT_GT(result.bytes, 0) << result.what;
    EXPECT_GT(result.share, 0) << result.what;
    if (result.share_of_attention.has_value()) {
      EXPECT_EQ(result.kernel, "routing and update");
      EXPECT_GT(*result.share_of_attention, 0);
      ++updates;
    }
  }
  EXPECT_EQ(kernels, (std::set<std::string>{"matmul", "slot attention", "routing and update", "rwkv7",
                                            "gated delta net", "kimi delta", "ovq update"}));
  EXPECT_EQ(updates, 2);
  const size_t half = report->results.size() / 2;
  EXPECT_EQ(report->results[0].threads, 1);
  EXPECT_EQ(report->results[half].threads, 2);
  EXPECT_EQ(report->results[0].what, report->results[half].what);
}

// 8 rows of 64 inputs and 96 outputs.
TEST(OperatorBenchTest, OperationsAndBytesAreCounted) {
  const ColdMemory memory(MinColdBytes(Small().sizes));
  const std::vector<OperatorCase> cases = OperatorCases(Small().sizes, memory);
  EXPECT_EQ(cases[0].flop, 2 * 8 * 64 * 96);
  EXPECT_EQ(cases[0].bytes, 4 * 64 * 96);
  const auto update = std::find_if(cases.begin(), cases.end(), [](const OperatorCase& c) { return c.is_chunk_update; });
  ASSERT_NE(update, cases.end());
  // Two heads of 32 channels, 8 tokens, 33 rows.
  EXPECT_EQ(update->flop, 2 * 2 * 32 * 8 * 33);
  EXPECT_EQ(update->bytes, 4 * 2 * 32 * 33);
}

// 400 operations and 40 bytes a second at most; the dense product reaches 100 operations.
TEST(OperatorBenchTest, SharesAreOfWhatBinds) {
  const auto make = [](double flop, double bytes, Bound bound) {
    OperatorCase c;
    c.flop = flop;
    c.bytes = bytes;
    c.bound = bound;
    return c;
  };
  std::vector<OperatorCase> cases = {make(200, 1, Bound::kMultiplyAdds), make(5, 80, Bound::kReads),
                                     make(30, 1, Bound::kMatMul), make(30, 1, Bound::kMatMul)};
  cases[0].is_matmul_peak = true;
  cases[2].is_chunk_attention = true;
  cases[3].is_chunk_update = true;
  Ceilings ceilings;
  ceilings.threads = 3;
  ceilings.flop_rate = {390, 400, 410};
  ceilings.read_rate = {39, 40, 41};
  // Medians count.
  const std::vector<Spread> seconds = {{1, 2, 3}, {3, 4, 5}, {0.5, 0.6, 9}, {0.1, 0.4, 0.5}};
  const std::vector<OperatorResult> results = JudgeOperators(cases, seconds, ceilings);
  ASSERT_EQ(results.size(), 4u);
  EXPECT_DOUBLE_EQ(results[0].share, 0.25);
  EXPECT_DOUBLE_EQ(results[1].share, 0.5);
  EXPECT_DOUBLE_EQ(results[2].share, 0.5);
  EXPECT_DOUBLE_EQ(results[3].share, 0.75);
  EXPECT_FALSE(results[2].share_of_attention.has_value());
  EXPECT_DOUBLE_EQ(results[3].share_of_attention.value(), 2.0 / 3);
  EXPECT_EQ(results[3].threads, 3);
}

TEST(OperatorBenchTest, StopsWhenAsked) {
  ThreadPool one(1);
  BenchHooks hooks;
  hooks.cancelled = [] { return true; };
  EXPECT_EQ(BenchOperators(Small(), {&one}, hooks).status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace kvm
