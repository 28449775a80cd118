#include "tools/report/bench_report.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

const Ceilings kCeilings[] = {{2, {90e9, 100e9, 110e9}, {9e9, 10e9, 11e9}}};

OperatorResult SomeOperator() {
  OperatorResult result;
  result.kernel = "routing and update";
  result.what = "3 heads";
  result.threads = 2;
  result.seconds = {0.001, 0.002, 0.004};
  result.flop = 1e8;
  result.bytes = 1e7;
  result.bound = Bound::kMatMul;
  result.share = 0.5;
  result.share_of_attention = 0.25;
  return result;
}

ModelResult SomeModel() {
  ContextResult context;
  context.context = 4096;
  context.piece_tokens = 100;
  context.read_seconds = 2.5;
  context.rows = 1234;
  context.state_bytes = 3 << 20;
  context.resident_bytes = 40 << 20;
  context.piece_flop = 5e9;
  context.token_flop = 1e8;
  context.token_bytes = 4e7;
  // 200 tokens/s of 50 MFLOP; 5 ms for 40 MB and 100 MFLOP.
  context.times = {{2, {0.4, 0.5, 1.0}, {0.006, 0.007, 0.008}, {0.004, 0.005, 0.02}}};
  ModelResult result;
  result.name = "some model";
  result.contexts = {context};
  for (double x = 1024; x < 1e6; x *= 2) {
    // What lies before the first context is not fitted.
    result.piece_seconds.push_back({x, x < 4096 ? 100 : std::sqrt(x)});
    result.total_seconds.push_back({x, x < 4096 ? 100 : x * x});
  }
  return result;
}

TEST(BenchReportTest, CeilingsAreInGiga) {
  EXPECT_THAT(CeilingTable(kCeilings), HasSubstr("\n2 threads  100 (90.0-110)  10.0 (9.00-11.0)\n\n"));
}

TEST(BenchReportTest, OperatorsHaveRatesAndShares) {
  const std::string table = OperatorTable({SomeOperator()});
  EXPECT_THAT(table, HasSubstr("routing and update: 3 heads        2       2 (1-4)     50.0  5.00    50%  matmul\n"));
  EXPECT_THAT(table, HasSubstr("routing and update with 2 threads: 25% of the time of the same chunk's attention\n"));
}

TEST(BenchReportTest, PrefillIsInTokensASecond) {
  const std::string table = PrefillTable(SomeModel(), kCeilings);
  EXPECT_THAT(table, HasSubstr("4K                2       200 (100-250)         50.0     10.0      10%       2.5 s\n"));
}

TEST(BenchReportTest, DecodingIsInMillisecondsAToken) {
  const std::string table = DecodeTable(SomeModel(), kCeilings);
  EXPECT_THAT(table, HasSubstr("4K               2         5   20      7  1,234  3.0 MiB    38.1 MiB  8.00       80%"
                               "     20.0      20%\n"));
}

TEST(BenchReportTest, OneContextShowsNoGrowth) {
  ModelResult model = SomeModel();
  model.piece_seconds.clear();
  model.total_seconds = {{8192, 1}};
  EXPECT_FALSE(FitGrowth(model).piece.has_value());
  EXPECT_FALSE(FitGrowth(model).total.has_value());
  EXPECT_THAT(StateTable({model}, 7 << 20), HasSubstr("time of a piece ~ context^?, of all tokens ~ context^?\n"));
}

TEST(BenchReportTest, GrowthIsFittedBehindTheFirstContext) {
  const GrowthExponents growth = FitGrowth(SomeModel());
  EXPECT_NEAR(growth.piece.value(), 0.5, 1e-9);
  EXPECT_NEAR(growth.total.value(), 2, 1e-9);
  const std::string table = StateTable({SomeModel()}, 7 << 20);
  EXPECT_THAT(table, HasSubstr("time of a piece ~ context^0.50, of all tokens ~ context^2.00\n"));
  EXPECT_THAT(table, HasSubstr("10.0 MiB  40.0 MiB\n"));
}

TEST(BenchReportTest, JsonHasWhatTablesHave) {
  const nlohmann::json model = ToJson(absl::Span<const ModelResult>({SomeModel()}), kCeilings)[0];
  const nlohmann::json& times = model["contexts"][0]["times"][0];
  EXPECT_EQ(times["prefill"]["tokens_per_second"]["median"], 200);
  EXPECT_EQ(times["prefill"]["tokens_per_second"]["max"], 250);
  EXPECT_DOUBLE_EQ(times["prefill"]["share_of_multiply_adds"], 0.1);
  EXPECT_DOUBLE_EQ(times["decode"]["share_of_reads"], 0.8);
  EXPECT_DOUBLE_EQ(times["decode"]["share_of_multiply_adds"], 0.2);
  const nlohmann::json op = ToJson(absl::Span<const OperatorResult>({SomeOperator()}))[0];
  EXPECT_DOUBLE_EQ(op["flop_per_second"], 5e10);
  EXPECT_EQ(op["bound"], "matmul");
  EXPECT_EQ(op["share_of_attention"], 0.25);
}

}  // namespace
}  // namespace kvm
