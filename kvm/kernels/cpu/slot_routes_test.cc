// The two halves of an update apart from each other, in batches of heads, and with numbers that are none.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/kernels/cpu/slot_update.h"
#include "kvm/kernels/cpu/slot_update_testing.h"
#include "kvm/kernels/cpu/vectors/every_target.h"
#include "kvm/kernels/thread_pool.h"

namespace kvm {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Heads with rows, tokens and options of their own.
class Heads {
 public:
  explicit Heads(int64_t count, DType dtype = DType::kF32) {
    for (int64_t h = 0; h < count; ++h) {
      const int64_t num_rows = 20 + 31 * h, num_tokens = 5 + 60 * h;
      memories_.push_back(std::make_unique<Memory>(num_rows + 50, dtype));
      tokens_.push_back(std::make_unique<Tokens>(num_tokens, static_cast<uint32_t>(7 + h)));
      tokens_.back()->AddGates(static_cast<uint32_t>(70 + h));
      const Tokens seeds(num_rows, static_cast<uint32_t>(3 + h));
      SeedRows(seeds.View(), false, norm_.View(), ValueReadout::kRadius, memories_.back()->rows);
      SlotUpdateHead head;
      head.tokens = tokens_.back()->View();
      head.norm = norm_.View();
      head.rows = memories_.back()->rows;
      head.options.num_sinks = h % 3;
      head.options.num_appends = std::min(num_tokens, 11 * h);
      head.options.gate_appends = h % 2 == 1;
      head.options.second_merge = h % 2 == 0 ? 0.5f : 0;
      heads.push_back(head);
    }
  }

  std::vector<std::vector<float>> Rows(int64_t h) const {
    std::vector<std::vector<float>> rows;
    for (int64_t row = 0; row < heads[h].rows.count; ++row) rows.push_back(memories_[h]->Row(row));
    return rows;
  }

  std::vector<SlotUpdateHead> heads;

 private:
  Norm norm_;
  std::vector<std::unique_ptr<Memory>> memories_;
  std::vector<std::unique_ptr<Tokens>> tokens_;
};

std::pmr::vector<SlotRoutes> Route(const Heads& heads, ThreadPool& pool) {
  return RouteTokens(heads.heads, std::pmr::get_default_resource(), pool);
}

TEST(RouteTokensTest, ChangesNoRow) {
  ThreadPool pool(1);
  ForEveryTarget([&] {
    Heads routed(3), untouched(3);
    Route(routed, pool);
    for (int64_t h = 0; h < 3; ++h) EXPECT_EQ(routed.Rows(h), untouched.Rows(h));
  });
}

TEST(RouteTokensTest, ThreadsAndOtherHeadsChangeNothing) {
  ForEveryTarget([] {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
      Heads alone(5, dtype);
      ThreadPool one(1);
      std::vector<SlotRoutes> expected;
      for (SlotUpdateHead& head : alone.heads) {
        const auto routes = RouteTokens({&head, 1}, std::pmr::get_default_resource(), one);
        ApplyRoutes({&head, 1}, routes, one);
        expected.push_back(routes[0]);
      }
      for (const int threads : {1, 2, 5, 16}) {
        SCOPED_TRACE(threads);
        ThreadPool pool(threads, /*oversubscribe=*/true);
        Heads together(5, dtype);
        const auto routes = Route(together, pool);
        ApplyRoutes(absl::MakeSpan(together.heads), routes, pool);
        ASSERT_EQ(routes.size(), expected.size());
        for (int64_t h = 0; h < 5; ++h) {
          EXPECT_EQ(routes[h].row_of_token, expected[h].row_of_token) << h;
          EXPECT_EQ(routes[h].second_row, expected[h].second_row) << h;
          EXPECT_EQ(routes[h].appended, expected[h].appended) << h;
          EXPECT_EQ(together.Rows(h), alone.Rows(h)) << h;
        }
      }
    }
  });
}

TEST(RouteTokensTest, NoHeadsNoWork) {
  ThreadPool pool(2);
  EXPECT_TRUE(RouteTokens({}, std::pmr::get_default_resource(), pool).empty());
  ApplyRoutes({}, {}, pool);
}

TEST(RouteTokensTest, TheResultIsInTheGivenMemory) {
  ThreadPool pool(2, /*oversubscribe=*/true);
  const Heads heads(4);
  std::pmr::monotonic_buffer_resource memory;
  const auto routes = RouteTokens(heads.heads, &memory, pool);
  EXPECT_EQ(routes.get_allocator().resource(), &memory);
  for (const SlotRoutes& of_head : routes) {
    EXPECT_EQ(of_head.row_of_token.get_allocator().resource(), &memory);
    EXPECT_EQ(of_head.second_row.get_allocator().resource(), &memory);
    EXPECT_EQ(of_head.appended.get_allocator().resource(), &memory);
  }
}

TEST(ApplyRoutesTest, TakesRoutesThatNobodyComputed) {
  ThreadPool pool(1);
  ForEveryTarget([&] {
    const Norm norm;
    Memory memory(6, DType::kF32);
    const Tokens seeds(4, 3), tokens(3, 8);
    SeedRows(seeds.View(), false, norm.View(), ValueReadout::kRadius, memory.rows);
    SlotUpdateHead head = {tokens.View(), {}, norm.View(), memory.rows};
    head.options.second_merge = 0.5f;
    SlotRoutes routes(3, std::pmr::get_default_resource());
    routes.row_of_token = {2, 4, 4};
    routes.second_row = {-1, -1, 0};
    routes.appended = {false, true, false};
    ApplyRoutes({&head, 1}, {&routes, 1}, pool);
    EXPECT_EQ(head.rows.count, 5);
    for (int64_t c = 0; c < kQk; ++c) {
      const auto token = [&](int64_t t) { return tokens.keys[t * kQk + c]; };
      const auto seed = [&](int64_t t) { return seeds.keys[t * kQk + c]; };
      EXPECT_EQ(memory.key_sums[0 * kQk + c], seed(0) + 0.5f * token(2));
      EXPECT_EQ(memory.key_sums[1 * kQk + c], seed(1));
      EXPECT_EQ(memory.key_sums[2 * kQk + c], seed(2) + token(0));
      EXPECT_EQ(memory.key_sums[4 * kQk + c], token(1) + token(2));
    }
  });
}

// Rows 0 (a sink), 1, 2, ... 69, of which some are NaN, and tokens of which one is.
TEST(SlotNanTest, RoutesAreThoseWithoutTheRowsThatAreNone) {
  ThreadPool pool(1);
  ForEveryTarget([&] {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const Norm norm;
      Memory memory(80, dtype);
      Tokens seeds(70, 3), tokens(20, 8);
      // What no token is as similar to as to others, so that its loss changes no route.
      for (const int64_t row : {5, 16, 63, 69}) std::fill_n(seeds.keys.begin() + row * kQk, kQk, 0.0f);
      Tokens poisoned_seeds = seeds;
      for (const int64_t row : {5, 16, 63, 69}) poisoned_seeds.keys[row * kQk + 3] = kNaN;
      const auto route = [&](const Tokens& of_rows) {
        Memory rows(80, dtype);
        SeedRows(of_rows.View(), false, norm.View(), ValueReadout::kRadius, rows.rows);
        SlotUpdateHead head = {tokens.View(), {}, norm.View(), rows.rows};
        head.options.num_sinks = 1;
        head.options.num_appends = 4;
        head.options.second_merge = 0.5f;
        return RouteTokens({&head, 1}, std::pmr::get_default_resource(), pool)[0];
      };
      const SlotRoutes sound = route(seeds), poisoned = route(poisoned_seeds);
      EXPECT_EQ(poisoned.row_of_token, sound.row_of_token);
      EXPECT_EQ(poisoned.second_row, sound.second_row);
      EXPECT_EQ(poisoned.appended, sound.appended);
    }
  });
}

TEST(SlotNanTest, ATokenThatIsNoneIsAppendedFirstElseGoesToTheFirstRowThatMayTakeIt) {
  ThreadPool pool(1);
  ForEveryTarget([&] {
    const Norm norm;
    for (const int64_t num_appends : {0, 2}) {
      Memory memory(25, DType::kF32);
      Tokens tokens(20, 8);
      tokens.keys[7 * kQk + 2] = tokens.keys[13 * kQk] = kNaN;
      const Tokens seeds(20, 3);
      SeedRows(seeds.View(), false, norm.View(), ValueReadout::kRadius, memory.rows);
      SlotUpdateOptions options;
      options.num_sinks = 3;
      options.num_appends = num_appends;
      options.second_merge = 0.5f;
      const SlotRoutes routes = Update(tokens.View(), options, norm.View(), memory.rows);
      EXPECT_EQ(routes.row_of_token[7], num_appends == 0 ? 3 : 20);
      EXPECT_EQ(routes.row_of_token[13], num_appends == 0 ? 3 : 21);
      EXPECT_EQ(routes.second_row[7], -1);
      // It is in the sums and in what is read of the row.
      for (const int64_t token : {7, 13}) {
        const int64_t row = routes.row_of_token[token];
        EXPECT_TRUE(std::isnan(memory.key_sums[row * kQk + (token == 7 ? 2 : 0)]));
        for (int64_t c = 0; c < kQk; ++c) EXPECT_TRUE(std::isnan(memory.ReadoutKey(row, c))) << c;
      }
    }
  });
}

TEST(SlotNanTest, OfValuesGatesAndNormsIsInTheRows) {
  ForEveryTarget([] {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
      for (const bool appends : {false, true}) {
        const auto row_of = [&](auto poison) {
          Norm norm;
          Memory memory(30, dtype);
          Tokens tokens(4, 8);
          tokens.AddGates(9);
          const Tokens seeds(20, 3);
          SeedRows(seeds.View(), false, norm.View(), ValueReadout::kRadius, memory.rows);
          poison(tokens, norm);
          SlotUpdateOptions options;
          options.num_appends = appends ? 4 : 0;
          options.gate_appends = true;
          const SlotRoutes routes = Update(tokens.View(), options, norm.View(), memory.rows);
          return memory.Row(routes.row_of_token[2]);
        };
        // Sums of a key, of a value, the radius, then a key and a value as they are read.
        constexpr int64_t kReadoutKey = kQk + kV + 1, kReadoutValue = kReadoutKey + kQk;
        const auto of_value = row_of([](Tokens& tokens, Norm&) { tokens.values[2 * kV + 1] = kNaN; });
        EXPECT_TRUE(std::isnan(of_value[kQk + 1]));
        for (int64_t c = 0; c < kV; ++c) EXPECT_TRUE(std::isnan(of_value[kReadoutValue + c])) << c;
        EXPECT_FALSE(std::isnan(of_value[kReadoutKey]));
        const auto of_key_gate = row_of([](Tokens& tokens, Norm&) { tokens.key_gates[2] = kNaN; });
        for (int64_t c = 0; c < kQk; ++c) EXPECT_TRUE(std::isnan(of_key_gate[kReadoutKey + c])) << c;
        const auto of_value_gate = row_of([](Tokens& tokens, Norm&) { tokens.value_gates[2] = kNaN; });
        for (int64_t c = 0; c < kV; ++c) EXPECT_TRUE(std::isnan(of_value_gate[kReadoutValue + c])) << c;
        for (const bool bias : {false, true}) {
          const auto of_norm = row_of([&](Tokens&, Norm& norm) { (bias ? norm.bias : norm.weight)[4] = kNaN; });
          EXPECT_TRUE(std::isnan(of_norm[kReadoutKey + 4])) << bias;
        }
      }
    }
  });
}

TEST(SlotNanTest, OfAKeyBecomesAWholeMemoryKey) {
  const Norm norm;
  ForEveryTarget([&] {
    for (const int64_t c : {int64_t{2}, kQk - 1}) {
      Tokens tokens(3, 5);
      tokens.keys[kQk + c] = kNaN;
      std::vector<float> out(3 * kQk);
      MemoryKeys({tokens.keys.data(), 3, kQk}, 2, norm.View(), {out.data(), 3, kQk});
      for (int64_t i = 0; i < 3 * kQk; ++i) EXPECT_EQ(std::isnan(out[i]), i / kQk == 1) << i;
    }
    // Channels that are set to 0 take theirs with them.
    Tokens tokens(1, 5);
    tokens.keys[1] = kNaN;
    std::vector<float> out(kQk);
    MemoryKeys({tokens.keys.data(), 1, kQk}, 2, norm.View(), {out.data(), 1, kQk});
    for (const float x : out) EXPECT_FALSE(std::isnan(x));
  });
}

class SlotCallsDeathTest : public ::testing::Test {
 protected:
  SlotCallsDeathTest() : memory_(10, DType::kI8), tokens_(4, 8), keys_(4 * kQk) {
    SeedRows(Tokens(6, 3).View(), false, norm_.View(), ValueReadout::kRadius, memory_.rows);
    head_ = {tokens_.View(), {}, norm_.View(), memory_.rows};
  }

  // Both halves check what they share.
  template <typename Change>
  void ExpectBothDie(Change change, const char* message) {
    SlotUpdateHead wrong = head_;
    change(wrong);
    ThreadPool pool(1);
    const SlotRoutes routes(4, std::pmr::get_default_resource());
    EXPECT_DEATH(RouteTokens({&wrong, 1}, std::pmr::get_default_resource(), pool),
                 testing::ContainsRegex(std::string("^RouteTokens: ") + message));
    EXPECT_DEATH(ApplyRoutes({&wrong, 1}, {&routes, 1}, pool),
                 testing::ContainsRegex(std::string("^ApplyRoutes: ") + message));
    EXPECT_DEATH(SeedRows(wrong.tokens, false, wrong.norm, ValueReadout::kRadius, wrong.rows),
                 testing::ContainsRegex(std::string("^SeedRows: ") + message));
  }

  Norm norm_;
  Memory memory_;
  Tokens tokens_;
  std::vector<float> keys_;
  SlotUpdateHead head_;
};

TEST_F(SlotCallsDeathTest, WrongTokensRowsAndNorms) {
  using Head = SlotUpdateHead;
  ExpectBothDie([](Head& h) { h.tokens.keys.cols -= 1; }, "tokens.keys is \\[4, 11\\], expected \\[4, 12\\]");
  ExpectBothDie([](Head& h) { h.tokens.keys.data = nullptr; }, "tokens.keys is \\[4, 12\\] at a null address");
  ExpectBothDie([](Head& h) { h.tokens.values.rows = 3; }, "tokens.values is \\[3, 5\\], expected \\[4, 5\\]");
  ExpectBothDie(
      [&](Head& h) {
        h.tokens.key_gates = {keys_.data(), 3};
      },
      "tokens.key_gates.size\\(\\) is 3, expected 4");
  ExpectBothDie([&](Head& h) { h.tokens.value_gates = {keys_.data(), 5}; }, "tokens.value_gates.size\\(\\) is 5");
  ExpectBothDie([&](Head& h) { h.norm.weight = {keys_.data(), 11}; }, "norm.weight.size\\(\\) is 11, expected 12");
  ExpectBothDie([&](Head& h) { h.norm.bias = {}; }, "norm.bias.size\\(\\) is 0, expected 12");
  ExpectBothDie([](Head& h) { h.rows.qk_dim = 0; }, "rows.qk_dim is 0, expected at least 1");
  ExpectBothDie([](Head& h) { h.rows.v_dim = 0; }, "rows.v_dim is 0, expected at least 1");
  ExpectBothDie([](Head& h) { h.rows.count = 11; }, "rows.count is 11, expected 0 to 10");
  ExpectBothDie([](Head& h) { h.rows.readout_dtype = DType::kI32; },
                "expected rows.readout_dtype to be F32, BF16 or I8");
  ExpectBothDie([](Head& h) { h.rows.radii = nullptr; }, "expected rows with memory for sums and radii");
  ExpectBothDie([](Head& h) { h.rows.readout_values = nullptr; }, "expected rows with memory for their readout");
  ExpectBothDie([](Head& h) { h.rows.readout_key_scales = nullptr; },
                "expected rows of integers with memory for scales");
}

TEST_F(SlotCallsDeathTest, WrongRowsOfAReadout) {
  SlotRows rows = head_.rows;
  rows.readout_keys = nullptr;
  EXPECT_DEATH(RefreshReadout(norm_.View(), ValueReadout::kRadius, rows), "^RefreshReadout: expected rows with memory");
  EXPECT_DEATH(RefreshReadout({norm_.weight, {}}, ValueReadout::kRadius, head_.rows),
               "^RefreshReadout: norm.bias.size\\(\\) is 0, expected 12");
}

TEST_F(SlotCallsDeathTest, WrongOptions) {
  ThreadPool pool(1);
  const auto route = [&] { RouteTokens({&head_, 1}, std::pmr::get_default_resource(), pool); };
  head_.options.num_sinks = -1;
  EXPECT_DEATH(route(), "^RouteTokens: options.num_sinks is -1, expected at least 0");
  head_.options.num_sinks = 6;
  EXPECT_DEATH(route(), "^RouteTokens: rows after step 1 is 6, expected at least 7");
  head_.options.num_sinks = 0;
  head_.options.num_appends = 5;
  EXPECT_DEATH(route(), "^RouteTokens: options.num_appends is 5, expected 0 to 4");
  head_.options.num_appends = 4;
  head_.rows.capacity = 9;
  EXPECT_DEATH(route(), "^RouteTokens: rows.count \\+ options.num_appends is 10, expected at most 9");
  EXPECT_DEATH(SeedRows(head_.tokens, false, head_.norm, ValueReadout::kRadius, head_.rows),
               "^SeedRows: rows.count \\+ tokens.keys.rows is 10, expected at most 9");
}

TEST_F(SlotCallsDeathTest, WrongRoutes) {
  ThreadPool pool(1);
  const auto apply = [&](auto change) {
    SlotRoutes routes(4, std::pmr::get_default_resource());
    change(routes);
    ApplyRoutes({&head_, 1}, {&routes, 1}, pool);
  };
  EXPECT_DEATH(ApplyRoutes({&head_, 1}, {}, pool), "^ApplyRoutes: routes.size\\(\\) is 0, expected 1");
  EXPECT_DEATH(apply([](SlotRoutes& r) { r.row_of_token.pop_back(); }), "row_of_token.size\\(\\) is 3, expected 4");
  EXPECT_DEATH(apply([](SlotRoutes& r) { r.second_row.pop_back(); }), "second_row.size\\(\\) is 3, expected 4");
  EXPECT_DEATH(apply([](SlotRoutes& r) { r.appended.pop_back(); }), "appended.size\\(\\) is 3, expected 4");
  for (const int64_t row : {-1, 6}) {
    EXPECT_DEATH(apply([&](SlotRoutes& r) { r.row_of_token[2] = row; }), "expected routes to rows that there are");
  }
  for (const int64_t row : {-2, 6}) {
    EXPECT_DEATH(apply([&](SlotRoutes& r) { r.second_row[2] = row; }), "expected routes to rows that there are");
  }
  EXPECT_DEATH(apply([](SlotRoutes& r) { r.appended[2] = true; }),
               "expected appended tokens to become the rows behind");
  head_.rows.capacity = 6;
  EXPECT_DEATH(apply([](SlotRoutes& r) { r.appended[2] = true; }), "tokens that are appended is 7, expected at most 6");
}

TEST_F(SlotCallsDeathTest, WrongMemoryKeys) {
  const auto keys = [&](int64_t rows, int64_t cols, int64_t zeroed, MatrixView<float> out) {
    MemoryKeys({tokens_.keys.data(), rows, cols}, zeroed, norm_.View(), out);
  };
  EXPECT_DEATH(keys(4, 11, 0, {keys_.data(), 4, 11}), "^MemoryKeys: norm.weight.size\\(\\) is 12, expected 11");
  EXPECT_DEATH(keys(4, 12, 0, {keys_.data(), 3, 12}), "^MemoryKeys: out is \\[3, 12\\], expected \\[4, 12\\]");
  EXPECT_DEATH(keys(4, 12, 13, {keys_.data(), 4, 12}), "^MemoryKeys: zeroed is 13, expected 0 to 12");
  EXPECT_DEATH(keys(4, 12, -1, {keys_.data(), 4, 12}), "^MemoryKeys: zeroed is -1, expected 0 to 12");
  EXPECT_DEATH(keys(3, 12, 0, {tokens_.keys.data() + kQk, 3, 12}), "^MemoryKeys: expected out to be keys or apart");
}

}  // namespace
}  // namespace kvm
