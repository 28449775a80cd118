#include "kvm/bench/ceiling_meter.h"

#include "gtest/gtest.h"

namespace kvm {
namespace {

TEST(CeilingMeterTest, SamplesEveryPool) {
  ThreadPool one(1), two(2);
  const ColdMemory memory(1 << 20);
  CeilingMeter meter({&one, &two}, &memory);
  meter.Sample();
  meter.Sample();
  const std::vector<Ceilings> summary = meter.Summary();
  ASSERT_EQ(summary.size(), 2u);
  EXPECT_EQ(summary[0].threads, 1);
  EXPECT_EQ(summary[1].threads, 2);
  for (const Ceilings& ceilings : summary) {
    EXPECT_GT(ceilings.flop_rate.min, 0);
    EXPECT_GE(ceilings.flop_rate.max, ceilings.flop_rate.median);
    EXPECT_GT(ceilings.read_rate.min, 0);
    EXPECT_GE(ceilings.read_rate.max, ceilings.read_rate.median);
  }
  EXPECT_EQ(&CeilingsOf(2, summary), &summary[1]);
}

}  // namespace
}  // namespace kvm
