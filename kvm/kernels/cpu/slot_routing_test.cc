// Which row every token goes to, worked out by hand: keys are small integers times the patterns
//   P_i = +1 in channel 2i, −1 in channel 2i + 1, 0 elsewhere
// that have no mean and are orthogonal. With a plain norm a row P_i is read as s·P_i, s = 1/sqrt(1/6 + 1e-5) = 2.4494,
// and a token Σ a_i·P_i is similar to it by 2·s·a_i = 4.8988·a_i, exactly the same number for equal a_i.

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/cpu/pointwise/elementwise.h"
#include "kvm/kernels/cpu/slot_update.h"
#include "kvm/kernels/cpu/slot_update_testing.h"
#include "kvm/kernels/cpu/vectors/every_target.h"

namespace kvm {
namespace {

using Routes = std::pmr::vector<int64_t>;
using Coefficients = std::vector<float>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> Key(Coefficients coefficients) {
  std::vector<float> key(kQk);
  for (size_t i = 0; i < coefficients.size(); ++i) {
    key[2 * i] = coefficients[i];
    key[2 * i + 1] = -coefficients[i];
  }
  return key;
}

// Token t has the value (t + 1, 0, 0, 0, 0).
Tokens Patterns(const std::vector<Coefficients>& coefficients) {
  Tokens tokens(static_cast<int64_t>(coefficients.size()), 0);
  tokens.values.assign(tokens.values.size(), 0.0f);
  for (size_t t = 0; t < coefficients.size(); ++t) {
    const std::vector<float> key = Key(coefficients[t]);
    std::copy(key.begin(), key.end(), tokens.keys.begin() + static_cast<int64_t>(t) * kQk);
    tokens.values[t * kV] = static_cast<float>(t + 1);
  }
  return tokens;
}

Norm PlainNorm() {
  Norm norm;
  norm.weight.assign(kQk, 1.0f);
  norm.bias.assign(kQk, 0.0f);
  return norm;
}

// Rows P0 (the sink), P1 and P2, and the chunk that comes to them.
struct Example {
  explicit Example(int64_t capacity = 10, int64_t num_rows = 3) : memory(capacity, DType::kF32) {
    options.num_sinks = 1;
    std::vector<Coefficients> rows = {{1}, {0, 1}, {0, 0, 1}};
    rows.resize(num_rows);
    SeedRows(Patterns(rows).View(), false, norm.View(), options.readout, memory.rows);
  }

  Routes Update() { return kvm::Update(tokens.View(), options, norm.View(), memory.rows).row_of_token; }
  std::vector<float> KeySum(int64_t row) const {
    return {memory.key_sums.begin() + row * kQk, memory.key_sums.begin() + (row + 1) * kQk};
  }
  float ValueSum(int64_t row) const { return memory.value_sums[row * kV]; }

  Norm norm = PlainNorm();
  Memory memory;
  SlotUpdateOptions options;
  // Redundancies, in units of 2s: 3 (for the sink), 0, 2, 1, 4, 5 (the sink), 2 (the sink).
  Tokens tokens =
      Patterns({{3, 0, 1, 0}, {0, 0, 0, 1}, {0, 2, 0, 1}, {0, 1, 0, 2}, {0, 4, 0, 0}, {5, -1, -2, 0}, {2, -1, -1, -1}});
};

TEST(SlotRoutingTest, OneAppendAndSixMerges) {
  ForEveryTarget([] {
    Example example;
    example.options.num_appends = 1;
    // Token 1 becomes row 3. Token 0 is most like the sink, then row 2. Token 3 prefers the new row. Token 5 is least
    // unlike it. Token 6 ties on rows 1, 2 and 3.
    EXPECT_EQ(example.Update(), (Routes{2, 3, 1, 3, 1, 3, 1}));
    EXPECT_EQ(example.KeySum(0), Key({1}));
    EXPECT_EQ(example.KeySum(1), Key({2, 6, -1, 0}));  // P1 + tokens 2, 4, 6
    EXPECT_EQ(example.KeySum(2), Key({3, 0, 2, 0}));   // P2 + token 0
    EXPECT_EQ(example.KeySum(3), Key({5, 0, -2, 3}));  // tokens 1, 3, 5
    EXPECT_EQ(example.ValueSum(0), 1);
    EXPECT_EQ(example.ValueSum(1), 2 + 3 + 5 + 7);
    EXPECT_EQ(example.ValueSum(2), 3 + 1);
    EXPECT_EQ(example.ValueSum(3), 2 + 4 + 6);
    EXPECT_EQ(std::vector<float>(example.memory.radii.begin(), example.memory.radii.begin() + 4),
              (std::vector<float>{1, 2, 3, 2}));
  });
}

TEST(SlotRoutingTest, TieAtTheBudgetAppendsTheEarlierToken) {
  ForEveryTarget([] {
    Example example;
    example.options.num_appends = 3;
    // After tokens 1 and 3, tokens 2 and 6 tie at 2. Rows 4 and 5 are mixtures, read with 1.0954 instead of 2.4494:
    // token 4 stays with row 1, 4·2.449 against 4·2·1.095.
    EXPECT_EQ(example.Update(), (Routes{2, 3, 4, 5, 1, 3, 1}));
  });
}

TEST(SlotRoutingTest, NoAppends) {
  ForEveryTarget([] {
    Example example;
    EXPECT_EQ(example.Update(), (Routes{2, 1, 1, 1, 1, 1, 1}));
    EXPECT_EQ(example.memory.rows.count, 3);
  });
}

TEST(SlotRoutingTest, StateExactlyFull) {
  ForEveryTarget([] {
    // Room for the appended rows and no more.
    Example filling(/*capacity=*/4);
    filling.options.num_appends = 1;
    EXPECT_EQ(filling.Update(), (Routes{2, 3, 1, 3, 1, 3, 1}));
    EXPECT_EQ(filling.memory.rows.count, filling.memory.rows.capacity);
    // Full from the start.
    filling.options.num_appends = 0;
    filling.tokens = Patterns({{0, 0, 0, 1}, {0, 1}});
    EXPECT_EQ(filling.Update(), (Routes{3, 1}));
    EXPECT_EQ(filling.memory.rows.count, 4);
  });
}

TEST(SlotRoutingTest, OneRowThatIsNoSinkTakesEverything) {
  ForEveryTarget([] {
    Example example(/*capacity=*/2, /*num_rows=*/2);
    EXPECT_EQ(example.Update(), Routes(7, 1));
    EXPECT_EQ(example.KeySum(0), Key({1}));
  });
}

TEST(SlotRoutingTest, RowsThatNeverReceiveATokenStayThroughManyUpdates) {
  ForEveryTarget([] {
    Example example;
    const std::vector<float> sink = example.memory.Row(0), row2 = example.memory.Row(2);
    example.tokens = Patterns({{9, 1}, {3, 2, -5}});
    for (int i = 0; i < 5; ++i) EXPECT_EQ(example.Update(), (Routes{1, 1}));
    EXPECT_EQ(example.memory.Row(0), sink);
    EXPECT_EQ(example.memory.Row(2), row2);
  });
}

TEST(SlotRoutingTest, GatesThatUnderflowToZeroPickTheSameRows) {
  ForEveryTarget([] {
    // 1 + ELU(x) = exp(x) is 0 in float32 here.
    std::vector<float> gates(7, -200.0f);
    OnePlusElu(MatrixView<float>(gates.data(), 1, 7));
    ASSERT_EQ(gates, std::vector<float>(7, 0.0f));
    Example example;
    example.options.num_appends = 1;
    example.options.gate_appends = true;
    const std::vector<float> row1 = example.memory.Row(1);
    example.tokens.key_gates = example.tokens.value_gates = gates;
    // Row 3, gated away, is like every token by 0: it takes those that are unlike the other rows.
    EXPECT_EQ(example.Update(), (Routes{2, 3, 1, 1, 1, 3, 3}));
    EXPECT_EQ(example.memory.Row(1), row1);
    EXPECT_EQ(example.KeySum(3), Key({}));
    EXPECT_EQ(example.memory.radii[3], 0);
    EXPECT_EQ(example.memory.ReadoutValue(3, 0), 0);
    // Ungated as it becomes a row, row 3 takes what it took without gates.
    Example ungated_row;
    ungated_row.options.num_appends = 1;
    ungated_row.tokens.key_gates = ungated_row.tokens.value_gates = gates;
    EXPECT_EQ(ungated_row.Update(), (Routes{2, 3, 1, 3, 1, 3, 1}));
    EXPECT_EQ(ungated_row.KeySum(3), Key({0, 0, 0, 1}));
  });
}

TEST(SlotRoutingTest, GatesOfKeysAndValuesAreApart) {
  ForEveryTarget([] {
    const std::vector<float> zeros(7, 0.0f);
    Example no_keys;
    no_keys.tokens.key_gates = zeros;
    EXPECT_EQ(no_keys.Update(), (Routes{2, 1, 1, 1, 1, 1, 1}));
    EXPECT_EQ(no_keys.KeySum(1), Key({0, 1}));
    EXPECT_EQ(no_keys.ValueSum(1), 2 + 2 + 3 + 4 + 5 + 6 + 7);
    EXPECT_EQ(no_keys.ValueSum(2), 3 + 1);
    Example no_values;
    no_values.tokens.value_gates = zeros;
    EXPECT_EQ(no_values.Update(), (Routes{2, 1, 1, 1, 1, 1, 1}));
    EXPECT_EQ(no_values.KeySum(1), Key({7, 6, -3, 3}));
    EXPECT_EQ(no_values.ValueSum(1), 2);
  });
}

TEST(SlotRoutingTest, MeansCountEveryUpdateAndRouteAlike) {
  ForEveryTarget([] {
    Example example;
    example.options.readout = ValueReadout::kMean;
    example.options.num_appends = 1;
    std::fill_n(example.memory.radii.begin(), 3, 1.0f);  // rows as SeedRows leaves them for means
    EXPECT_EQ(example.Update(), (Routes{2, 3, 1, 3, 1, 3, 1}));
    EXPECT_EQ(std::vector<float>(example.memory.radii.begin(), example.memory.radii.begin() + 4),
              (std::vector<float>{2, 2, 2, 2}));
    EXPECT_EQ(example.memory.ReadoutValue(0, 0), 0.5f);       // the sink's 1 over 2
    EXPECT_EQ(example.memory.ReadoutValue(1, 0), 17.0f / 2);  // 2 + 3 + 5 + 7
    EXPECT_EQ(example.memory.ReadoutValue(3, 0), 12.0f / 2);  // 2 + 4 + 6
  });
}

TEST(AppendBelowTest, AppendsOnlyWhatIsLessRedundant) {
  ForEveryTarget([] {
    const auto update = [](float append_below, int64_t num_appends) {
      Example example;
      example.options.append_below = append_below;
      example.options.num_appends = num_appends;
      return example.Update();
    };
    EXPECT_EQ(update(2, 7), (Routes{2, 3, 1, 3, 1, 3, 1}));       // token 1 at 0
    EXPECT_EQ(update(0, 7), (Routes{2, 1, 1, 1, 1, 1, 1}));       // 0 is not below 0
    EXPECT_EQ(update(10, 3), (Routes{2, 3, 4, 5, 1, 3, 1}));      // tokens 1, 3, 2 and 6 are below 2.04 units; 3 fit
    EXPECT_EQ(update(4.9f, 3), (Routes{2, 3, 1, 4, 1, 3, 1}));    // tokens 1 and 3, below 1.0003 units
    EXPECT_EQ(update(1e30f, 7), (Routes{3, 4, 5, 6, 7, 8, 9}));   // all
    EXPECT_EQ(update(-1e30f, 7), (Routes{2, 1, 1, 1, 1, 1, 1}));  // none
  });
}

TEST(AppendBelowTest, LimitsAreTheBudgetAloneAndNoAppends) {
  ForEveryTarget([] {
    const Norm norm;
    for (int64_t num_appends : {0, 1, 9, 20}) {
      SCOPED_TRACE(num_appends);
      const auto update = [&](float append_below, int64_t appends) {
        SlotUpdateOptions options;
        options.num_sinks = 2;
        options.num_appends = appends;
        options.append_below = append_below;
        Memory memory(90, DType::kF32);
        reference::SlotState state;
        Found(70, norm, options, memory, state);
        Tokens tokens(20, 41);
        tokens.AddGates(42);
        Update(tokens.View(), options, norm.View(), memory.rows);
        std::vector<std::vector<float>> rows;
        for (int64_t row = 0; row < memory.rows.count; ++row) rows.push_back(memory.Row(row));
        return rows;
      };
      const auto plain = update(kInfinity, num_appends), merged = update(kInfinity, 0);
      EXPECT_EQ(update(1e30f, num_appends), plain);
      EXPECT_EQ(update(-1e30f, num_appends), merged);
      EXPECT_EQ(update(-kInfinity, num_appends), merged);
    }
  });
}

TEST(SecondMergeTest, AddsToTheNextBestRow) {
  ForEveryTarget([] {
    Example example;
    example.options.num_appends = 1;
    example.options.second_merge = 0.5f;
    // Best rows as without; next best: tokens 0 and 4 tie at 0 on two rows, token 6 on its other two.
    EXPECT_EQ(example.Update(), (Routes{2, 3, 1, 3, 1, 3, 1}));
    EXPECT_EQ(example.KeySum(0), Key({1}));
    EXPECT_EQ(example.KeySum(1), Key({2 + 4, 6 + 0.5f - 0.5f, -1 + 0.5f - 1, 1}));  // and half of tokens 0, 3, 5
    EXPECT_EQ(example.KeySum(2), Key({3 + 1, 2 - 0.5f, 2 - 0.5f, -0.5f}));          // and half of tokens 4, 6
    EXPECT_EQ(example.KeySum(3), Key({5, 1, -2, 3 + 0.5f}));                        // and half of token 2
    EXPECT_EQ(example.ValueSum(1), 17 + 0.5f * (1 + 4 + 6));
    EXPECT_EQ(example.ValueSum(2), 4 + 0.5f * (5 + 7));
    EXPECT_EQ(example.ValueSum(3), 12 + 0.5f * 3);
    EXPECT_EQ(example.memory.radii[1], 2);
  });
}

TEST(SecondMergeTest, NeedsASecondRow) {
  ForEveryTarget([] {
    Example once(2, 2), twice(2, 2);
    twice.options.second_merge = 1;
    EXPECT_EQ(twice.Update(), once.Update());
    EXPECT_EQ(twice.memory.Row(0), once.memory.Row(0));
    EXPECT_EQ(twice.memory.Row(1), once.memory.Row(1));
  });
}

TEST(SecondMergeTest, TooSmallToMatterIsTheSameAsNone) {
  ForEveryTarget([] {
    const Norm norm;
    SlotUpdateOptions options;
    options.num_sinks = 1;
    options.num_appends = 4;
    Memory plain(80, DType::kF32), second(80, DType::kF32);
    reference::SlotState state;
    Found(70, norm, options, plain, state);
    Found(70, norm, options, second, state);
    const Tokens tokens(30, 43);
    const Routes routes = Update(tokens.View(), options, norm.View(), plain.rows).row_of_token;
    options.second_merge = 1e-30f;
    EXPECT_EQ(Update(tokens.View(), options, norm.View(), second.rows).row_of_token, routes);
    for (size_t i = 0; i < plain.key_sums.size(); ++i) EXPECT_NEAR(second.key_sums[i], plain.key_sums[i], 1e-25);
    for (size_t i = 0; i < plain.value_sums.size(); ++i) EXPECT_NEAR(second.value_sums[i], plain.value_sums[i], 1e-25);
  });
}

TEST(MergeDecayTest, DecaysOldRowsThatTakeATokenOnce) {
  ForEveryTarget([] {
    Example example;
    example.options.num_appends = 1;
    example.options.merge_decay = 0.25f;
    const std::vector<float> sink = example.memory.Row(0);
    EXPECT_EQ(example.Update(), (Routes{2, 3, 1, 3, 1, 3, 1}));
    EXPECT_EQ(example.memory.Row(0), sink);
    EXPECT_EQ(example.KeySum(1), Key({2, 5 + 0.25f, -1, 0}));  // three tokens, one decay
    EXPECT_EQ(example.KeySum(2), Key({3, 0, 1 + 0.25f, 0}));
    EXPECT_EQ(example.KeySum(3), Key({5, 0, -2, 3}));  // appended just now: nothing is old
    EXPECT_EQ(example.ValueSum(1), 0.25f * 2 + 3 + 5 + 7);
    EXPECT_EQ(example.ValueSum(3), 2 + 4 + 6);
    EXPECT_EQ(example.memory.radii[2], 3);
    // The next update decays row 3, too, and leaves rows that it does not touch.
    const std::vector<float> row1 = example.memory.Row(1);
    example.options.num_appends = 0;
    example.tokens = Patterns({{0, 0, 0, 8}});
    EXPECT_EQ(example.Update(), (Routes{3}));
    EXPECT_EQ(example.KeySum(3), Key({1.25f, 0, -0.5f, 8.75f}));
    EXPECT_EQ(example.memory.Row(1), row1);
  });
}

TEST(MergeDecayTest, ZeroForgetsAllButTheNewTokens) {
  ForEveryTarget([] {
    Example example;
    example.options.merge_decay = 0;
    example.tokens = Patterns({{0, 2, 1}, {0, 1}});
    EXPECT_EQ(example.Update(), (Routes{1, 1}));
    EXPECT_EQ(example.KeySum(1), Key({0, 3, 1}));
    EXPECT_EQ(example.ValueSum(1), 3);
  });
}

TEST(SlotOptionsTest, TogetherMatchReference) {
  ForEveryTarget([] {
    const Norm norm;
    for (int64_t count : {3, 17, 64, 100}) {
      for (float append_below : {kInfinity, 20.0f}) {
        for (float second_merge : {0.0f, 0.5f, 1.0f}) {
          SCOPED_TRACE(::testing::Message() << count << ", " << append_below << ", " << second_merge);
          SlotUpdateOptions options;
          options.num_sinks = 1;
          options.num_appends = 5;
          options.append_below = append_below;
          options.second_merge = second_merge;
          options.merge_decay = 0.5f;
          Memory memory(count + 10, DType::kF32);
          reference::SlotState state;
          Found(count, norm, options, memory, state);
          for (uint32_t seed : {51, 52}) {
            Tokens tokens(12, seed);
            tokens.AddGates(seed + 10);
            UpdateBoth(tokens, options, norm, memory, state);
          }
        }
      }
    }
  });
}

// Every element within half a step of 1/127 of its row's largest.
TEST(IntegerReadoutTest, RoundsToTheNearestStep) {
  ForEveryTarget([] {
    const Norm norm;
    SlotUpdateOptions options;
    options.num_sinks = 1;
    options.num_appends = 5;
    Memory exact(40, DType::kF32), integers(40, DType::kI8);
    reference::SlotState state;
    Found(20, norm, options, exact, state);
    Found(20, norm, options, integers, state);
    const Tokens tokens(30, 22);
    EXPECT_EQ(Update(tokens.View(), options, norm.View(), integers.rows).row_of_token,
              Update(tokens.View(), options, norm.View(), exact.rows).row_of_token);
    EXPECT_EQ(integers.key_sums, exact.key_sums);
    EXPECT_EQ(integers.value_sums, exact.value_sums);
    EXPECT_EQ(integers.radii, exact.radii);
    for (int64_t row = 0; row < exact.rows.count; ++row) {
      float largest_key = 0, largest_value = 0;
      for (int64_t c = 0; c < kQk; ++c) largest_key = std::max(largest_key, std::abs(exact.ReadoutKey(row, c)));
      for (int64_t c = 0; c < kV; ++c) largest_value = std::max(largest_value, std::abs(exact.ReadoutValue(row, c)));
      EXPECT_EQ(integers.key_scales[row], largest_key / 127);
      EXPECT_EQ(integers.value_scales[row], largest_value / 127);
      for (int64_t c = 0; c < kQk; ++c) {
        EXPECT_NEAR(integers.ReadoutKey(row, c), exact.ReadoutKey(row, c), largest_key / 254 * 1.00001f);
      }
      for (int64_t c = 0; c < kV; ++c) {
        EXPECT_NEAR(integers.ReadoutValue(row, c), exact.ReadoutValue(row, c), largest_value / 254 * 1.00001f);
      }
    }
  });
}

TEST(IntegerReadoutTest, ZeroTinyAndNotFiniteValues) {
  const Norm norm;
  SlotUpdateOptions options;
  Memory memory(4, DType::kI8);
  Tokens tokens(4, 23);
  tokens.values.assign(4 * kV, 0.0f);
  tokens.values[kV] = 1e-44f;  // a scale that float32 rounds to zero
  tokens.values[2 * kV] = std::numeric_limits<float>::quiet_NaN();
  tokens.values[3 * kV + 1] = kInfinity;
  SeedRows(tokens.View(), false, norm.View(), options.readout, memory.rows);
  EXPECT_EQ(memory.ReadoutValue(0, 0), 0);
  EXPECT_NEAR(memory.ReadoutValue(1, 0), 0, 1e-43);
  EXPECT_TRUE(std::isnan(memory.ReadoutValue(2, 0)));
  EXPECT_TRUE(std::isnan(memory.ReadoutValue(3, 1)));
}

}  // namespace
}  // namespace kvm
