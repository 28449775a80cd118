#include "kvm/state/slot_budget.h"

#include <limits>

#include "gtest/gtest.h"

namespace kvm {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

SlotBudget PowerLaw(double factor, double exponent) {
  SlotBudget budget;
  budget.growth = SlotBudget::Growth::kPowerLaw;
  budget.factor = factor;
  budget.exponent = exponent;
  budget.max_chunks = kNoLimit;
  return budget;
}

SlotBudget Saturation(double limit) {
  SlotBudget budget;
  budget.growth = SlotBudget::Growth::kSaturation;
  budget.limit = limit;
  budget.max_chunks = kNoLimit;
  return budget;
}

// The budget alone: nothing caps it and no rows are present.
int64_t Wanted(const SlotBudget& budget, int64_t context_length) {
  return TargetRows(budget, context_length, kNoLimit, 256, 0);
}

TEST(SlotBudgetTest, FixedIsMinRows) {
  SlotBudget budget;
  budget.min_rows = 256;
  EXPECT_EQ(TargetRows(budget, 512, 512, 256, 256), 256);
  EXPECT_EQ(TargetRows(budget, 1 << 20, 1 << 19, 256, 256), 256);
}

TEST(SlotBudgetTest, FixedWithoutMinimumKeepsPresentRows) { EXPECT_EQ(TargetRows(SlotBudget(), 512, 512, 256, 7), 7); }

TEST(SlotBudgetTest, FixedIsNotRoundedDown) {
  SlotBudget budget;
  budget.min_rows = 250;
  budget.round_down = 64;
  EXPECT_EQ(Wanted(budget, 512), 250);
}

TEST(SlotBudgetTest, PowerLawWithExponentZeroIsTheFactor) { EXPECT_EQ(Wanted(PowerLaw(300.9, 0), 12345), 300); }

TEST(SlotBudgetTest, PowerLawWithExponentHalf) {
  EXPECT_EQ(Wanted(PowerLaw(16, 0.5), 512), 362);     // 16·22.627 = 362.04
  EXPECT_EQ(Wanted(PowerLaw(16, 0.5), 1024), 512);    // exact
  EXPECT_EQ(Wanted(PowerLaw(16, 0.5), 32768), 2896);  // 16·181.02 = 2896.3
  EXPECT_EQ(Wanted(PowerLaw(16, 0.5), 65535), 4095);  // just under 4096
  EXPECT_EQ(Wanted(PowerLaw(1.5, 0.5), 49), 10);      // 10.5
}

TEST(SlotBudgetTest, PowerLawWithExponentThreeQuarters) {
  EXPECT_EQ(Wanted(PowerLaw(1, 0.75), 256), 64);      // exact
  EXPECT_EQ(Wanted(PowerLaw(2, 0.75), 65536), 8192);  // exact
  EXPECT_EQ(Wanted(PowerLaw(1, 0.75), 1000), 177);    // 177.83
}

TEST(SlotBudgetTest, PowerLawWithExponentOneIsLinear) {
  EXPECT_EQ(Wanted(PowerLaw(0.25, 1), 4096), 1024);
  EXPECT_EQ(Wanted(PowerLaw(0.25, 1), 4099), 1024);  // 1024.75
}

TEST(SlotBudgetTest, SaturationApproachesItsLimit) {
  EXPECT_EQ(Wanted(Saturation(1024), 512), 341);       // 524288/1536 = 341.33
  EXPECT_EQ(Wanted(Saturation(1024), 1024), 512);      // half the limit
  EXPECT_EQ(Wanted(Saturation(1024), 1 << 20), 1023);  // 1023.0009
}

TEST(SlotBudgetTest, GrowingModesRoundDownToAMultiple) {
  SlotBudget power = PowerLaw(16, 0.5);
  power.round_down = 64;
  EXPECT_EQ(Wanted(power, 512), 320);   // 362 -> 5·64
  EXPECT_EQ(Wanted(power, 1024), 512);  // a multiple stays
  SlotBudget saturation = Saturation(1024);
  saturation.round_down = 100;
  EXPECT_EQ(Wanted(saturation, 512), 300);
  saturation.round_down = 400;
  EXPECT_EQ(Wanted(saturation, 512), 0);
}

TEST(SlotBudgetTest, MinimumAppliesAfterRoundingDown) {
  SlotBudget budget = PowerLaw(16, 0.5);
  budget.round_down = 64;
  budget.min_rows = 330;
  EXPECT_EQ(Wanted(budget, 512), 330);
  EXPECT_EQ(Wanted(budget, 1024), 512);
}

TEST(SlotBudgetTest, NeverMoreThanTheTokensAvailable) {
  EXPECT_EQ(TargetRows(PowerLaw(16, 0.5), 1024, 500, 256, 0), 500);
  EXPECT_EQ(TargetRows(PowerLaw(16, 0.5), 1024, 512, 256, 0), 512);
}

TEST(SlotBudgetTest, NeverMoreThanMaxChunks) {
  SlotBudget budget = PowerLaw(16, 0.5);
  budget.max_chunks = 1;
  EXPECT_EQ(TargetRows(budget, 1024, kNoLimit, 256, 0), 256);
  budget.max_chunks = 2;
  EXPECT_EQ(TargetRows(budget, 1024, kNoLimit, 200, 0), 400);
}

TEST(SlotBudgetTest, HugeMaxChunksAndFactorsDoNotOverflow) {
  SlotBudget budget = PowerLaw(1e300, 0.5);
  budget.max_chunks = kNoLimit - 1;
  EXPECT_EQ(TargetRows(budget, 1024, 777, 256, 0), 777);
}

TEST(SlotBudgetTest, ShrinkingTargetsNeverGiveUpRows) {
  EXPECT_EQ(TargetRows(PowerLaw(16, -0.5), 1024, 2048, 256, 300), 300);
  SlotBudget capped = PowerLaw(16, 0.5);
  capped.max_chunks = 1;
  EXPECT_EQ(TargetRows(capped, 1024, 2048, 256, 400), 400);
  EXPECT_EQ(TargetRows(capped, 1024, 100, 256, 101), 101);
}

TEST(SlotBudgetTest, RoundingDownBelowThePresentRowsKeepsThem) {
  SlotBudget budget = PowerLaw(16, 0.5);
  budget.round_down = 400;  // 362 -> 0, 724 -> 400
  EXPECT_EQ(TargetRows(budget, 512, 512, 256, 256), 256);
  EXPECT_EQ(TargetRows(budget, 2048, 1536, 256, 256), 400);
  EXPECT_EQ(TargetRows(budget, 2048, 1536, 256, 401), 401);
}

TEST(SlotBudgetTest, SaturationBelowTheFirstChunkKeepsIt) {
  SlotBudget budget = Saturation(24);
  budget.min_rows = 1;
  for (const int64_t context : {16, 24, 1 << 20}) EXPECT_EQ(TargetRows(budget, context, context, 24, 24), 24);
}

TEST(SlotBudgetTest, EveryExponentRoundsDownToMultiples) {
  const double exponents[] = {0, 0.5, 0.75, 1};
  // 3, 3·sqrt(4096) = 192, 3·512 = 1536, 3·4096 = 12288; with 4095 all but the first are less.
  const int64_t at_4096[] = {3, 192, 1536, 12288}, at_4095[] = {3, 191, 1535, 12285};
  const int64_t multiples_of_8[] = {0, 184, 1528, 12280};
  for (int i = 0; i < 4; ++i) {
    SlotBudget budget = PowerLaw(3, exponents[i]);
    EXPECT_EQ(Wanted(budget, 4096), at_4096[i]) << exponents[i];
    EXPECT_EQ(Wanted(budget, 4095), at_4095[i]) << exponents[i];
    budget.round_down = 8;
    EXPECT_EQ(Wanted(budget, 4096), at_4096[i] / 8 * 8) << exponents[i];
    EXPECT_EQ(Wanted(budget, 4095), multiples_of_8[i]) << exponents[i];
  }
}

}  // namespace
}  // namespace kvm
