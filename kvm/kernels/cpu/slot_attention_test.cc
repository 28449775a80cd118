#include "kvm/kernels/cpu/slot_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/bfloat16.h"
#include "kvm/kernels/cpu/every_target.h"
#include "kvm/kernels/reference/slot_attention.h"

namespace kvm {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The memory of one segment, and the segment itself.
struct Segment {
  std::vector<float> keys32, values32;
  std::vector<BFloat16> keys16, values16;
  KeyValueSegment view;
};

float Rounded(float x, DType dtype) { return dtype == DType::kBF16 ? ToFloat(ToBFloat16(x)) : x; }

// One head's queries and segments with what the reference needs to know of them.
class Problem {
 public:
  Problem(int64_t qk_dim, int64_t v_dim) : qk_dim_(qk_dim), v_dim_(v_dim) {}

  // Lanes past `count` are NaN: they must have no influence.
  void AddSegment(int64_t count, bool is_state, int64_t first_position, DType dtype) {
    segments_.emplace_back();
    Segment& segment = segments_.back();
    segment.keys32.assign(KeyPanelElements(count, qk_dim_), kNaN);
    segment.values32.resize(count * v_dim_);
    for (int64_t i = 0; i < count; ++i) {
      reference::AttentionKey key;
      for (int64_t c = 0; c < qk_dim_; ++c) {
        const float x = Rounded(normal_(random_), dtype);
        segment.keys32[KeyPanelOffset(i, c, qk_dim_)] = x;
        key.key.push_back(x);
      }
      for (int64_t c = 0; c < v_dim_; ++c) {
        const float x = Rounded(normal_(random_), dtype);
        segment.values32[i * v_dim_ + c] = x;
        key.value.push_back(x);
      }
      key.is_state = is_state;
      key.position = first_position + i;
      reference_keys_.push_back(key);
    }
    for (float x : segment.keys32) segment.keys16.push_back(ToBFloat16(x));
    for (float x : segment.values32) segment.values16.push_back(ToBFloat16(x));
    const bool half = dtype == DType::kBF16;
    segment.view.keys = half ? static_cast<const void*>(segment.keys16.data()) : segment.keys32.data();
    segment.view.values = half ? static_cast<const void*>(segment.values16.data()) : segment.values32.data();
    segment.view.dtype = dtype;
    segment.view.count = count;
    segment.view.is_state = is_state;
    segment.view.first_position = first_position;
  }

  void SetQueries(int64_t count, int64_t first_position, int64_t span) {
    num_queries_ = count;
    first_position_ = first_position;
    span_ = span;
    queries_.resize(count * qk_dim_);
    for (float& x : queries_) x = normal_(random_);
  }

  void SetScales(float state, float window) {
    state_scale_ = state;
    window_scale_ = window;
  }

  // Makes float32 key i of segment s, or its value, unusable.
  void Poison(size_t s, int64_t i) {
    for (int64_t c = 0; c < qk_dim_; ++c) segments_[s].keys32[KeyPanelOffset(i, c, qk_dim_)] = kNaN;
    for (int64_t c = 0; c < v_dim_; ++c) segments_[s].values32[i * v_dim_ + c] = kNaN;
  }

  int64_t num_queries() const { return num_queries_; }
  std::vector<KeyValueSegment> Views() const {
    std::vector<KeyValueSegment> views;
    for (const Segment& segment : segments_) views.push_back(segment.view);
    return views;
  }

  // Queries first..first+count in one call, over the given segments.
  std::vector<float> Run(const std::vector<KeyValueSegment>& views, int64_t first, int64_t count,
                         ThreadPool& pool) const {
    std::vector<float> out(count * v_dim_, kNaN);
    const AttentionHead head = Head(views, first, count, out.data());
    SlotAttention({&head, 1}, pool);
    return out;
  }
  std::vector<float> Run(ThreadPool& pool) const { return Run(Views(), 0, num_queries_, pool); }

  AttentionHead Head(const std::vector<KeyValueSegment>& views, int64_t first, int64_t count, float* out) const {
    AttentionHead head;
    head.queries = {queries_.data() + first * qk_dim_, count, qk_dim_};
    head.out = {out, count, v_dim_};
    head.segments = views;
    head.first_position = first_position_ + first;
    head.span = span_;
    head.state_scale = state_scale_;
    head.window_scale = window_scale_;
    return head;
  }

  std::vector<double> Expected(int64_t r) const {
    const std::vector<double> query(queries_.begin() + r * qk_dim_, queries_.begin() + (r + 1) * qk_dim_);
    return reference::SlotAttention(query, first_position_ + r, reference_keys_, span_, state_scale_, window_scale_);
  }

 private:
  int64_t qk_dim_;
  int64_t v_dim_;
  std::mt19937 random_{17};
  std::normal_distribution<float> normal_;
  std::vector<Segment> segments_;
  std::vector<reference::AttentionKey> reference_keys_;
  std::vector<float> queries_;
  int64_t num_queries_ = 0;
  int64_t first_position_ = 0;
  int64_t span_ = kUnlimitedSpan;
  float state_scale_ = 1;
  float window_scale_ = 1;
};

// A score's error is a few epsilon per channel of numbers near 1 and moves a weight by as much; sums of weights add to
// it.
void ExpectMatchesReference(const Problem& problem, const std::vector<float>& out) {
  const int64_t v_dim = static_cast<int64_t>(out.size()) / problem.num_queries();
  for (int64_t r = 0; r < problem.num_queries(); ++r) {
    const std::vector<double> expected = problem.Expected(r);
    for (int64_t c = 0; c < v_dim; ++c) ASSERT_NEAR(out[r * v_dim + c], expected[c], 2e-5) << r << ", " << c;
  }
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<float> Rows(const std::vector<float>& all, int64_t num_rows, int64_t first, int64_t count) {
  const int64_t cols = static_cast<int64_t>(all.size()) / num_rows;
  return std::vector<float>(all.begin() + first * cols, all.begin() + (first + count) * cols);
}

// State rows, two window blocks and the queries of the second one, as in KVM: blocks of 70 positions.
Problem StateAndWindow(int64_t qk_dim, int64_t v_dim, DType dtype) {
  Problem problem(qk_dim, v_dim);
  problem.AddSegment(77, /*is_state=*/true, 0, dtype);
  problem.AddSegment(70, false, 70, dtype);
  problem.AddSegment(70, false, 140, dtype);
  problem.SetQueries(70, 140, kUnlimitedSpan);
  problem.SetScales(0.4f / std::sqrt(static_cast<float>(qk_dim)), 1.3f / std::sqrt(static_cast<float>(qk_dim)));
  return problem;
}

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
      ThreadPool pool(threads);
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
