#include "kvm/kernels/cpu/recurrence/delta_rule.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/cpu/vectors/every_target.h"
#include "kvm/kernels/reference/delta_rule.h"

namespace kvm {
namespace {

std::vector<double> ToDouble(const float* x, int64_t n) { return std::vector<double>(x, x + n); }

std::vector<float> Uniform(int64_t n, float low, float high, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> distribution(low, high);
  std::vector<float> x(n);
  for (float& e : x) e = distribution(random);
  return x;
}

void ToUnitLength(std::vector<float>* x, int64_t dim) {
  for (size_t at = 0; at < x->size(); at += dim) {
    float squares = 0;
    for (int64_t c = 0; c < dim; ++c) squares += (*x)[at + c] * (*x)[at + c];
    for (int64_t c = 0; c < dim; ++c) (*x)[at + c] /= std::sqrt(squares);
  }
}

// The tokens of one head in their own memory, with keys of length 1 as the rule needs to stay bounded.
struct Problem {
  Problem(int64_t n, int64_t keys, int64_t values, bool decay_per_channel, float least_log_decay)
      : n(n),
        keys(keys),
        values(values),
        decays(decay_per_channel ? keys : 1),
        q(Uniform(n * keys, -1, 1, 1)),
        k(Uniform(n * keys, -1, 1, 2)),
        v(Uniform(n * values, -1, 1, 3)),
        log_decay(Uniform(n * decays, least_log_decay, 0, 4)),
        beta(Uniform(n, 0, 2, 5)),
        initial(Uniform(keys * values, -1, 1, 6)) {
    ToUnitLength(&q, keys);
    ToUnitLength(&k, keys);
    for (const float g : log_decay) decay.push_back(std::exp(g));
  }

  // Tokens first..first+count.
  DeltaRuleHead Head(int64_t first, int64_t count, float* state, float* out) const {
    const auto view = [&](const std::vector<float>& x, int64_t cols) {
      return MatrixView<const float>(x.data() + first * cols, count, cols);
    };
    return {view(q, keys),
            view(k, keys),
            view(v, values),
            view(decay, decays),
            view(beta, 1),
            state,
            {out + first * values, count, values}};
  }

  int64_t n, keys, values, decays;
  std::vector<float> q, k, v, log_decay, decay, beta, initial;
};

struct Result {
  std::vector<float> out, state;
  bool operator==(const Result& other) const { return out == other.out && state == other.state; }
};

Result RunInPieces(const Problem& problem, int64_t piece) {
  ThreadPool pool(1);
  Result result = {std::vector<float>(problem.n * problem.values), problem.initial};
  for (int64_t first = 0; first < problem.n; first += piece) {
    const DeltaRuleHead head =
        problem.Head(first, std::min(piece, problem.n - first), result.state.data(), result.out.data());
    DeltaRule({&head, 1}, pool);
  }
  return result;
}

void ExpectMatchesReference(const Problem& problem, const Result& result) {
  const int64_t keys = problem.keys, values = problem.values;
  std::vector<std::vector<double>> state;
  for (int64_t i = 0; i < keys; ++i) state.push_back(ToDouble(&problem.initial[i * values], values));
  // Rounding errors of sums over key channels, which hardly fade where hardly anything decays.
  const double tolerance = 2e-7 * std::sqrt(static_cast<double>(keys * (problem.n + 1)));
  for (int64_t t = 0; t < problem.n; ++t) {
    reference::DeltaRuleToken token;
    token.q = ToDouble(&problem.q[t * keys], keys);
    token.k = ToDouble(&problem.k[t * keys], keys);
    token.v = ToDouble(&problem.v[t * values], values);
    for (int64_t i = 0; i < keys; ++i) {
      token.log_decay.push_back(problem.log_decay[t * problem.decays + (problem.decays == 1 ? 0 : i)]);
    }
    token.beta = problem.beta[t];
    const std::vector<double> expected = reference::DeltaRuleStep(token, state);
    for (int64_t c = 0; c < values; ++c) {
      ASSERT_NEAR(result.out[t * values + c], expected[c], tolerance * (1 + std::abs(expected[c]))) << t << ", " << c;
    }
  }
  for (int64_t i = 0; i < keys; ++i) {
    for (int64_t c = 0; c < values; ++c) {
      ASSERT_NEAR(result.state[i * values + c], state[i][c], tolerance * (1 + std::abs(state[i][c])));
    }
  }
}

TEST(DeltaRuleTest, MatchesReferenceForAnyHeadSizes) {
  ForEveryTarget([] {
    for (const auto& [keys, values] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 1}, {2, 7}, {8, 16}, {12, 24}, {16, 20}, {7, 31}, {31, 72}, {64, 128}}) {
      for (const bool per_channel : {false, true}) {
        SCOPED_TRACE(::testing::Message() << keys << ", " << values << ", " << per_channel);
        const Problem problem(9, keys, values, per_channel, -2);
        ExpectMatchesReference(problem, RunInPieces(problem, 9));
      }
    }
  });
}

TEST(DeltaRuleTest, MatchesReferenceOverManyTokens) {
  ForEveryTarget([] {
    for (const bool per_channel : {false, true}) {
      const Problem problem(300, 12, 20, per_channel, -0.1f);
      ExpectMatchesReference(problem, RunInPieces(problem, 300));
    }
  });
}

TEST(DeltaRuleTest, MatchesReferenceWhenNothingOrEverythingDecays) {
  ForEveryTarget([] {
    for (const float least : {-1e4f, -200.0f, -1e-6f, 0.0f}) {
      for (const bool per_channel : {false, true}) {
        SCOPED_TRACE(::testing::Message() << least << ", " << per_channel);
        const Problem problem(70, 16, 20, per_channel, least);
        ExpectMatchesReference(problem, RunInPieces(problem, 70));
      }
    }
  });
}

TEST(DeltaRuleTest, SmallWholeNumbersByHand) {
  ForEveryTarget([] {
    // diag(2, 1)·[[1, 2], [3, 4]] = [[2, 4], [3, 4]]; Sᵀk = 2k₁·… with k = (1, 1): (5, 8); u = 3·((6, 6) − (5, 8)).
    std::vector<float> state = {1, 2, 3, 4};
    const std::vector<float> q = {1, 10}, k = {1, 1}, v = {6, 6}, decay = {2, 1}, beta = {3};
    std::vector<float> out(2);
    const auto view = [](const std::vector<float>& x) {
      return MatrixView<const float>(x.data(), 1, static_cast<int64_t>(x.size()));
    };
    const DeltaRuleHead head = {view(q), view(k), view(v), view(decay), view(beta), state.data(), {out.data(), 1, 2}};
    ThreadPool pool(1);
    DeltaRule({&head, 1}, pool);
    EXPECT_EQ(state, (std::vector<float>{2 + 3, 4 - 6, 3 + 3, 4 - 6}));
    EXPECT_EQ(out, (std::vector<float>{5 + 60, -2 - 20}));
  });
}

TEST(DeltaRuleTest, PiecesGiveTheSameBitsAsTheWhole) {
  ForEveryTarget([] {
    for (int64_t values : {7, 16, 20, 64}) {
      for (const bool per_channel : {false, true}) {
        const Problem problem(23, 12, values, per_channel, -2);
        const Result whole = RunInPieces(problem, 23);
        for (int64_t piece : {1, 2, 5, 22})
          EXPECT_TRUE(RunInPieces(problem, piece) == whole) << values << ", " << piece;
      }
    }
  });
}

TEST(DeltaRuleTest, ThreadsAndOtherHeadsChangeNoBit) {
  ForEveryTarget([] {
    const Problem problem(11, 12, 20, true, -2);
    const Result alone = RunInPieces(problem, 11);
    for (int threads : {1, 2, 3, 8}) {
      ThreadPool pool(threads, /*oversubscribe=*/true);
      std::vector<Result> results(5, Result{std::vector<float>(11 * 20), problem.initial});
      std::vector<DeltaRuleHead> heads;
      for (Result& result : results) heads.push_back(problem.Head(0, 11, result.state.data(), result.out.data()));
      DeltaRule(heads, pool);
      for (const Result& result : results) EXPECT_TRUE(result == alone) << threads;
    }
  });
}

TEST(DeltaRuleTest, NoTokensLeaveTheState) {
  const Problem problem(0, 8, 6, false, -2);
  std::vector<float> state = problem.initial;
  float nothing = 0;
  const DeltaRuleHead head = problem.Head(0, 0, state.data(), &nothing);
  ThreadPool pool(1);
  DeltaRule({&head, 1}, pool);
  EXPECT_EQ(state, problem.initial);
}

}  // namespace
}  // namespace kvm
