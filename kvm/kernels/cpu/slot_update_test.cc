#include "kvm/kernels/cpu/slot_update.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/cpu/slot_update_testing.h"
#include "kvm/kernels/cpu/vectors/every_target.h"
#include "kvm/kernels/reference/slot_update.h"

namespace kvm {
namespace {

using ::testing::Message;

TEST(MemoryKeysTest, ZeroesChannelsThenNormalizes) {
  ForEveryTarget([] {
    const Norm norm;
    const Tokens tokens(7, 5);
    for (int64_t zeroed : {int64_t{0}, int64_t{4}, kQk - 1}) {
      std::vector<float> out(tokens.keys.size());
      MemoryKeys({tokens.keys.data(), 7, kQk}, zeroed, norm.View(), {out.data(), 7, kQk});
      std::vector<float> in_place = tokens.keys;
      MemoryKeys({in_place.data(), 7, kQk}, zeroed, norm.View(), {in_place.data(), 7, kQk});
      EXPECT_EQ(in_place, out);
      const reference::SlotRules rules = Rules({}, norm);
      for (int64_t t = 0; t < 7; ++t) {
        const reference::Vector expected =
            reference::MemoryKey(tokens.Reference()[t].key, zeroed, rules.norm_weight, rules.norm_bias);
        for (int64_t c = 0; c < kQk; ++c) EXPECT_NEAR(out[t * kQk + c], expected[c], 4e-6);
      }
    }
  });
}

TEST(SeedRowsTest, GateScalesSumsButNotTheRadius) {
  ForEveryTarget([] {
    const Norm norm;
    for (bool gated : {false, true}) {
      Memory memory(20, DType::kF32);
      reference::SlotState state;
      Tokens tokens(18, 4);
      tokens.AddGates(6);
      SeedRows(tokens.View(), gated, norm.View(), ValueReadout::kRadius, memory.rows);
      const reference::SlotRules rules = Rules({}, norm);
      reference::SeedRows(tokens.Reference(), gated, rules, state);
      ExpectEqualsReference(memory, state, rules);
    }
  });
}

TEST(SeedRowsTest, InPiecesIsTheSameAsAtOnce) {
  const Norm norm;
  const Tokens tokens(18, 4);
  Memory whole(18, DType::kF32), pieces(18, DType::kF32);
  SeedRows(tokens.View(), false, norm.View(), ValueReadout::kRadius, whole.rows);
  for (int64_t t = 0; t < 18; ++t) {
    SlotTokens one = tokens.View();
    one.keys = one.keys.Rows(t, 1);
    one.values = one.values.Rows(t, 1);
    SeedRows(one, false, norm.View(), ValueReadout::kRadius, pieces.rows);
  }
  for (int64_t row = 0; row < 18; ++row) EXPECT_EQ(whole.Row(row), pieces.Row(row));
}

TEST(SlotUpdateTest, MatchesReferenceAroundPanelAndTileBoundaries) {
  ForEveryTarget([] {
    const Norm norm;
    for (int64_t count : {2, 15, 16, 17, 31, 33, 63, 64, 65, 130}) {
      for (int64_t num_appends : {0, 1, 7, 20}) {
        SCOPED_TRACE(Message() << count << " rows, " << num_appends << " appends");
        SlotUpdateOptions options;
        options.num_sinks = 1;
        options.num_appends = num_appends;
        Memory memory(count + num_appends, DType::kF32);
        reference::SlotState state;
        Found(count, norm, options, memory, state);
        UpdateBoth(Tokens(20, 11), options, norm, memory, state);
      }
    }
  });
}

TEST(SlotUpdateTest, MatchesReferenceForAnyNumberOfTokens) {
  ForEveryTarget([] {
    const Norm norm;
    for (int64_t n : {1, 2, 3, 5, 31, 32, 33, 70}) {
      SCOPED_TRACE(n);
      SlotUpdateOptions options;
      options.num_appends = n / 3;
      Memory memory(20 + n, DType::kF32);
      reference::SlotState state;
      Found(20, norm, options, memory, state);
      UpdateBoth(Tokens(n, 12), options, norm, memory, state);
    }
  });
}

TEST(SlotUpdateTest, MatchesReferenceOverManyGatedUpdates) {
  ForEveryTarget([] {
    const Norm norm;
    for (ValueReadout readout : {ValueReadout::kRadius, ValueReadout::kMean}) {
      for (bool gate_appends : {false, true}) {
        SlotUpdateOptions options;
        options.num_sinks = 2;
        options.gate_appends = gate_appends;
        options.readout = readout;
        Memory memory(40, DType::kF32);
        reference::SlotState state;
        Found(16, norm, options, memory, state);
        for (int64_t step = 0; step < 4; ++step) {
          SCOPED_TRACE(Message() << "step " << step);
          options.num_appends = 3 * step;
          Tokens tokens(16, static_cast<uint32_t>(20 + step));
          tokens.AddGates(static_cast<uint32_t>(30 + step));
          UpdateBoth(tokens, options, norm, memory, state);
        }
      }
    }
  });
}

TEST(SlotUpdateTest, EqualRowsGiveTheLowest) {
  ForEveryTarget([] {
    const Norm norm;
    SlotUpdateOptions options;
    options.num_sinks = 3;
    Tokens founders(70, 8);
    // Row 0, a sink, and rows 5, 20, 33 and 69 are one; a token equal to it must go to 5.
    for (int64_t row : {5, 20, 33, 69}) founders.CopyKey(0, row);
    Memory memory(70, DType::kF32);
    reference::SlotState state;
    SeedRows(founders.View(), false, norm.View(), options.readout, memory.rows);
    reference::SeedRows(founders.Reference(), false, Rules(options, norm), state);
    Tokens tokens(2, 9);
    for (int64_t t : {0, 1}) {
      std::copy_n(founders.keys.begin(), kQk, tokens.keys.begin() + t * kQk);
    }
    EXPECT_EQ(Update(tokens.View(), options, norm.View(), memory.rows).row_of_token, (std::pmr::vector<int64_t>{5, 5}));
  });
}

TEST(SlotUpdateTest, EquallyRedundantTokensAppendTheEarlier) {
  ForEveryTarget([] {
    const Norm norm;
    SlotUpdateOptions options;
    Memory memory(30, DType::kF32);
    reference::SlotState state;
    Found(17, norm, options, memory, state);
    Tokens tokens(6, 10);
    for (int64_t t = 1; t < 6; ++t) tokens.CopyKey(0, t);
    options.num_appends = 2;
    // The others equal both new rows: the lowest of the best takes them.
    EXPECT_EQ(Update(tokens.View(), options, norm.View(), memory.rows).row_of_token,
              (std::pmr::vector<int64_t>{17, 18, 17, 17, 17, 17}));
    EXPECT_EQ(memory.value_sums[18 * kV], tokens.values[kV]);
  });
}

TEST(SlotUpdateTest, AllTokensAppendedKeepTheirOrder) {
  ForEveryTarget([] {
    const Norm norm;
    SlotUpdateOptions options;
    options.num_sinks = 1;
    options.num_appends = 9;
    Memory memory(26, DType::kF32);
    reference::SlotState state;
    Found(17, norm, options, memory, state);
    UpdateBoth(Tokens(9, 13), options, norm, memory, state);
    EXPECT_EQ(memory.key_sums[25 * kQk], Tokens(9, 13).keys[8 * kQk]);
  });
}

TEST(SlotUpdateTest, SinksCountAsRedundantButTakeNothing) {
  ForEveryTarget([] {
    const Norm norm;
    SlotUpdateOptions options;
    options.num_sinks = 4;
    options.num_appends = 1;
    Memory memory(7, DType::kF32);
    reference::SlotState state;
    Found(6, norm, options, memory, state);
    // Copies of the sinks and a stranger.
    const Tokens founders(6, 3);
    Tokens tokens(5, 14);
    std::copy_n(founders.keys.begin(), 4 * kQk, tokens.keys.begin());
    std::fill_n(tokens.keys.begin() + 4 * kQk, kQk, 0.0f);
    tokens.keys[4 * kQk] = 1;  // too short to be similar to anything
    std::vector<std::vector<float>> sinks;
    for (int64_t row = 0; row < 4; ++row) sinks.push_back(memory.Row(row));
    UpdateBoth(tokens, options, norm, memory, state);
    for (int64_t row = 0; row < 4; ++row) EXPECT_EQ(memory.Row(row), sinks[row]);
    EXPECT_EQ(memory.key_sums[6 * kQk], tokens.keys[4 * kQk]);  // the stranger became the row
  });
}

TEST(SlotUpdateTest, OnlyAppendedRowsMayBeNoSinks) {
  ForEveryTarget([] {
    const Norm norm;
    SlotUpdateOptions options;
    options.num_sinks = 3;
    options.num_appends = 2;
    Memory memory(5, DType::kF32);
    reference::SlotState state;
    Found(3, norm, options, memory, state);
    UpdateBoth(Tokens(8, 15), options, norm, memory, state);
  });
}

TEST(SlotUpdateTest, GatesDoNotChangeRoutes) {
  ForEveryTarget([] {
    const Norm norm;
    SlotUpdateOptions options;
    options.num_sinks = 1;
    options.num_appends = 3;
    Tokens tokens(12, 16);
    Memory plain(40, DType::kF32), gated(40, DType::kF32);
    reference::SlotState state;
    Found(20, norm, options, plain, state);
    Found(20, norm, options, gated, state);
    const auto routes = Update(tokens.View(), options, norm.View(), plain.rows).row_of_token;
    tokens.key_gates.assign(12, 0.0f);
    tokens.value_gates.assign(12, 0.0f);
    const std::vector<std::vector<float>> before = {gated.Row(1), gated.Row(10), gated.Row(19)};
    EXPECT_EQ(Update(tokens.View(), options, norm.View(), gated.rows).row_of_token, routes);
    EXPECT_EQ((std::vector<std::vector<float>>{gated.Row(1), gated.Row(10), gated.Row(19)}), before);
  });
}

TEST(SlotUpdateTest, RowsWithoutATokenStayAsTheyAre) {
  ForEveryTarget([] {
    const Norm norm;
    SlotUpdateOptions options;
    Memory memory(50, DType::kF32);
    reference::SlotState state;
    Found(50, norm, options, memory, state);
    std::vector<std::vector<float>> before;
    for (int64_t row = 0; row < 50; ++row) before.push_back(memory.Row(row));
    const auto routes = Update(Tokens(4, 18).View(), options, norm.View(), memory.rows).row_of_token;
    std::vector<bool> touched(50, false);
    for (int64_t row : routes) touched[row] = true;
    for (int64_t row = 0; row < 50; ++row) EXPECT_EQ(memory.Row(row) != before[row], touched[row]) << row;
  });
}

TEST(SlotUpdateTest, MeanCountsUpdatesNotTokens) {
  ForEveryTarget([] {
    const Norm norm;
    SlotUpdateOptions options;
    options.readout = ValueReadout::kMean;
    Memory memory(10, DType::kF32);
    reference::SlotState state;
    Found(4, norm, options, memory, state);
    EXPECT_EQ(memory.radii[0], 1);
    options.num_appends = 2;
    UpdateBoth(Tokens(8, 19), options, norm, memory, state);
    EXPECT_EQ(std::vector<float>(memory.radii.begin(), memory.radii.begin() + 6), std::vector<float>(6, 2.0f));
    options.num_appends = 1;
    UpdateBoth(Tokens(1, 20), options, norm, memory, state);
    EXPECT_EQ(memory.radii[5], 3);
    EXPECT_EQ(memory.radii[6], 2);
  });
}

TEST(SlotUpdateTest, RadiusIsTheNormAsAppendedAndStays) {
  ForEveryTarget([] {
    const Norm norm;
    SlotUpdateOptions options;
    options.num_appends = 1;
    options.gate_appends = true;
    Memory memory(2, DType::kF32);
    Tokens tokens(1, 21);
    tokens.values = {3, 0, 4, 0, 0};
    tokens.key_gates = {1.0f};
    tokens.value_gates = {0.5f};
    Update(tokens.View(), options, norm.View(), memory.rows);
    EXPECT_EQ(memory.radii[0], 2.5f);
    options.num_appends = 0;
    Update(tokens.View(), options, norm.View(), memory.rows);
    EXPECT_EQ(memory.radii[0], 2.5f);
    EXPECT_EQ(memory.value_sums[2], 4);
    EXPECT_EQ(memory.ReadoutValue(0, 2), 2);  // (3, 0, 4) scaled to length 2.5
  });
}

TEST(SlotUpdateTest, BFloat16ReadoutTakesTheSameRoutes) {
  ForEveryTarget([] {
    const Norm norm;
    SlotUpdateOptions options;
    options.num_sinks = 1;
    options.num_appends = 5;
    Memory wide(80, DType::kF32), narrow(80, DType::kBF16);
    reference::SlotState wide_state, narrow_state;
    Found(40, norm, options, wide, wide_state);
    Found(40, norm, options, narrow, narrow_state);
    for (uint32_t seed : {22, 23, 24}) {
      UpdateBoth(Tokens(30, seed), options, norm, wide, wide_state);
      UpdateBoth(Tokens(30, seed), options, norm, narrow, narrow_state);
    }
    EXPECT_EQ(wide.key_sums, narrow.key_sums);
    EXPECT_EQ(wide.value_sums, narrow.value_sums);
  });
}

TEST(SlotUpdateTest, NotANumberGoesToTheFirstRowThatIsNoSink) {
  const Norm norm;
  SlotUpdateOptions options;
  options.num_sinks = 2;
  Memory memory(5, DType::kF32);
  reference::SlotState state;
  Found(5, norm, options, memory, state);
  Tokens tokens(1, 25);
  tokens.keys.assign(kQk, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(Update(tokens.View(), options, norm.View(), memory.rows).row_of_token, (std::pmr::vector<int64_t>{2}));
}

}  // namespace
}  // namespace kvm
