#include "kvm/kernels/cpu/slot_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/cpu/slot_attention_testing.h"
#include "kvm/kernels/cpu/vectors/every_target.h"

namespace kvm {
namespace {

TEST(SlotAttentionTest, MatchesReferenceForOddSizes) {
  ThreadPool pool(1);
  ForEveryTarget([&] {
    for (int64_t qk_dim : {1, 12, 33}) {
      for (int64_t v_dim : {1, 7, 12, 16, 37, 128}) {
        SCOPED_TRACE(testing::Message() << qk_dim << " x " << v_dim);
        for (DType dtype : {DType::kF32, DType::kBF16}) {
          const Problem problem = StateAndWindow(qk_dim, v_dim, dtype);
          ExpectMatchesReference(problem, problem.Run(pool));
        }
      }
    }
  });
}

TEST(SlotAttentionTest, MatchesReferenceForAnyNumberOfKeys) {
  ThreadPool pool(1);
  ForEveryTarget([&] {
    for (int64_t count : {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 200}) {
      SCOPED_TRACE(count);
      Problem problem(12, 20);
      problem.AddSegment(count, true, 0, DType::kF32);
      problem.SetQueries(5, 0, kUnlimitedSpan);
      ExpectMatchesReference(problem, problem.Run(pool));
    }
  });
}

TEST(SlotAttentionTest, MatchesReferenceForAnyNumberOfQueries) {
  ThreadPool pool(1);
  ForEveryTarget([&] {
    for (int64_t count : {1, 2, 3, 4, 5, 31, 32, 33, 67}) {
      SCOPED_TRACE(count);
      Problem problem(12, 20);
      problem.AddSegment(100, false, 0, DType::kF32);
      problem.SetQueries(count, 100 - count, kUnlimitedSpan);
      ExpectMatchesReference(problem, problem.Run(pool));
    }
  });
}

TEST(SlotAttentionTest, BiasesAreAddedToScores) {
  ThreadPool pool(1);
  ForEveryTarget([&] {
    for (int64_t count : {1, 7, 16, 50, 64, 65, 150}) {
      SCOPED_TRACE(count);
      Problem problem(12, 20);
      problem.AddSegment(count, true, 0, DType::kBF16);
      problem.AddBiases();
      problem.AddSegment(30, false, 0, DType::kF32);
      problem.AddSegment(count, false, 30, DType::kF32);
      problem.AddBiases();
      problem.SetQueries(6, 24 + count, 40);
      problem.SetScales(0.3f, 0.4f);
      ExpectMatchesReference(problem, problem.Run(pool));
    }
  });
}

TEST(SlotAttentionTest, BiasesOfZeroChangeNoBit) {
  ThreadPool pool(1);
  ForEveryTarget([&] {
    const Problem problem = StateAndWindow(12, 20, DType::kF32);
    const std::vector<float> zeros(KeyPanelElements(77, 1), 0.0f);
    std::vector<KeyValueSegment> views = problem.Views();
    views[0].biases = zeros.data();
    EXPECT_TRUE(SameBits(problem.Run(views, 0, 70, pool), problem.Run(pool)));
  });
}

TEST(SlotAttentionTest, SpanLimitsTheWindowButNotTheState) {
  ThreadPool pool(1);
  ForEveryTarget([&] {
    for (int64_t span : {1, 2, 17, 64, 65, 100, 149, 150, 1000}) {
      SCOPED_TRACE(span);
      for (bool with_state : {false, true}) {
        Problem problem(8, 9);
        if (with_state) problem.AddSegment(5, true, 0, DType::kF32);
        problem.AddSegment(130, false, 0, DType::kF32);
        problem.AddSegment(20, false, 130, DType::kF32);
        problem.SetQueries(50, 100, span);
        ExpectMatchesReference(problem, problem.Run(pool));
      }
    }
  });
}

TEST(SlotAttentionTest, LargeScoresDoNotOverflow) {
  ThreadPool pool(1);
  ForEveryTarget([&] {
    Problem problem(16, 4);
    problem.AddSegment(150, true, 0, DType::kF32);
    problem.SetQueries(6, 0, kUnlimitedSpan);
    problem.SetScales(100, 1);
    const std::vector<float> out = problem.Run(pool);
    for (int64_t r = 0; r < 6; ++r) {
      // Scores of some thousands are only so exact, but near enough for the same keys to win.
      const std::vector<double> expected = problem.Expected(r);
      for (int64_t c = 0; c < 4; ++c) EXPECT_NEAR(out[r * 4 + c], expected[c], 2e-3);
    }
  });
}

TEST(SlotAttentionTest, OneKeyGivesItsValue) {
  ThreadPool pool(1);
  ForEveryTarget([&] {
    Problem problem(3, 2);
    problem.AddSegment(1, false, 41, DType::kF32);
    problem.SetQueries(1, 41, 1);
    const std::vector<double> value = problem.Expected(0);
    EXPECT_EQ(problem.Run(pool), (std::vector<float>{static_cast<float>(value[0]), static_cast<float>(value[1])}));
  });
}

TEST(SlotAttentionTest, QueriesInAnyPiecesGiveTheSameBits) {
  ThreadPool pool(1);
  ForEveryTarget([&] {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      for (int64_t v_dim : {20, 128}) {
        const Problem problem = StateAndWindow(12, v_dim, dtype);
        const std::vector<float> together = problem.Run(pool);
        for (int64_t piece : {1, 2, 3, 5, 33}) {
          for (int64_t first = 0; first < 70; first += piece) {
            const int64_t count = std::min(piece, 70 - first);
            const std::vector<float> alone = problem.Run(problem.Views(), first, count, pool);
            ASSERT_TRUE(SameBits(alone, Rows(together, 70, first, count))) << piece << " from " << first;
          }
        }
      }
    }
  });
}

TEST(SlotAttentionTest, SpanLimitedQueriesInAnyPiecesGiveTheSameBits) {
  ThreadPool pool(1);
  ForEveryTarget([&] {
    for (int64_t span : {1, 3, 40, 100}) {
      Problem problem(12, 20);
      problem.AddSegment(150, false, 0, DType::kF32);
      problem.SetQueries(150, 0, span);
      const std::vector<float> together = problem.Run(pool);
      for (int64_t r = 0; r < 150; ++r) {
        ASSERT_TRUE(SameBits(problem.Run(problem.Views(), r, 1, pool), Rows(together, 150, r, 1))) << span << ", " << r;
      }
    }
  });
}

// More keys than one query goes through in one run.
TEST(SlotAttentionTest, OneQueryOverThousandsOfKeysGivesTheBitsOfSeveral) {
  constexpr int64_t kKeys = 9000;
  ThreadPool pool(1);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t span : {kUnlimitedSpan, int64_t{4500}}) {
      Problem problem(8, 4);
      problem.AddSegment(kKeys, /*is_state=*/true, 0, dtype);
      problem.AddSegment(kKeys, /*is_state=*/false, 0, dtype);
      problem.SetQueries(2, kKeys - 2, span);
      ForEveryTarget([&] {
        const std::vector<float> together = problem.Run(pool);
        ExpectMatchesReference(problem, together);
        for (int64_t r = 0; r < 2; ++r) {
          EXPECT_TRUE(SameBits(problem.Run(problem.Views(), r, 1, pool), Rows(together, 2, r, 1))) << r;
        }
      });
    }
  }
}

TEST(SlotAttentionTest, LaterKeysChangeNoBit) {
  ThreadPool pool(1);
  ForEveryTarget([&] {
    const Problem problem = StateAndWindow(12, 20, DType::kF32);
    const std::vector<float> final = problem.Run(pool);
    std::vector<KeyValueSegment> views = problem.Views();
    for (int64_t r = 0; r < 70; ++r) {
      views[2].count = r + 1;  // the segment as it was when query r was the newest
      ASSERT_TRUE(SameBits(problem.Run(views, r, 1, pool), Rows(final, 70, r, 1))) << r;
    }
  });
}

TEST(SlotAttentionTest, KeysOutOfSightHaveNoInfluence) {
  ThreadPool pool(1);
  ForEveryTarget([&] {
    Problem problem(12, 20);
    problem.AddSegment(10, true, 0, DType::kF32);
    problem.AddSegment(150, false, 0, DType::kF32);
    problem.SetQueries(7, 90, 30);
    const std::vector<float> clean = problem.Run(pool);
    for (int64_t i = 0; i <= 60; ++i) problem.Poison(1, i);   // older than query 90 sees
    for (int64_t i = 97; i < 150; ++i) problem.Poison(1, i);  // later than the last query
    EXPECT_TRUE(SameBits(problem.Run(pool), clean));
    // What a neighbour sees but a query does not: key 95 poisons queries 95 and 96 alone.
    problem.Poison(1, 95);
    const std::vector<float> poisoned = problem.Run(pool);
    EXPECT_TRUE(SameBits(Rows(poisoned, 7, 0, 5), Rows(clean, 7, 0, 5)));
    EXPECT_TRUE(std::isnan(poisoned[5 * 20]));
    EXPECT_TRUE(std::isnan(poisoned[6 * 20]));
  });
}

TEST(SlotAttentionTest, ThreadsAndOtherHeadsChangeNoBit) {
  ForEveryTarget([] {
    const Problem problem = StateAndWindow(12, 20, DType::kF32);
    const std::vector<KeyValueSegment> views = problem.Views();
    ThreadPool one(1);
    const std::vector<float> alone = problem.Run(one);
    for (int threads : {1, 2, 3, 8}) {
      ThreadPool pool(threads, /*oversubscribe=*/true);
      std::vector<float> out(3 * 70 * 20);
      std::vector<AttentionHead> heads;
      for (int64_t h = 0; h < 3; ++h) heads.push_back(problem.Head(views, 0, 70, out.data() + h * 70 * 20));
      SlotAttention(heads, pool);
      for (int64_t h = 0; h < 3; ++h) EXPECT_TRUE(SameBits(Rows(out, 3, h, 1), alone)) << threads << ", " << h;
    }
  });
}

TEST(SlotAttentionTest, NoQueriesNoWork) {
  ThreadPool pool(2);
  AttentionHead head;
  head.queries = {nullptr, 0, 8};
  head.out = {nullptr, 0, 8};
  SlotAttention({&head, 1}, pool);
  SlotAttention({}, pool);
}

TEST(SlotAttentionTest, ReadsAndWritesStridedRows) {
  ThreadPool pool(1);
  ForEveryTarget([&] {
    Problem problem(4, 3);
    problem.AddSegment(9, false, 0, DType::kF32);
    problem.SetQueries(6, 3, kUnlimitedSpan);
    const std::vector<KeyValueSegment> views = problem.Views();
    const std::vector<float> dense = problem.Run(pool);
    std::vector<float> out(6 * 5, -1);
    AttentionHead head = problem.Head(views, 0, 6, out.data());
    std::vector<float> queries(6 * 7, kNaN);
    for (int64_t r = 0; r < 6; ++r) std::copy_n(head.queries.row(r), 4, queries.data() + r * 7);
    head.queries = {queries.data(), 6, 4, 7};
    head.out = {out.data(), 6, 3, 5};
    SlotAttention({&head, 1}, pool);
    for (int64_t r = 0; r < 6; ++r) {
      EXPECT_TRUE(SameBits({out.begin() + r * 5, out.begin() + r * 5 + 3}, Rows(dense, 6, r, 1)));
      EXPECT_EQ(out[r * 5 + 3], -1);
      EXPECT_EQ(out[r * 5 + 4], -1);
    }
  });
}

}  // namespace
}  // namespace kvm
