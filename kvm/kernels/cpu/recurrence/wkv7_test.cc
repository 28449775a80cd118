#include "kvm/kernels/cpu/recurrence/wkv7.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/cpu/vectors/every_target.h"
#include "kvm/kernels/reference/wkv7.h"

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

// The tokens of one head in their own memory, with κ of length 1 as the recurrence needs to stay bounded.
struct Problem {
  Problem(int64_t n, int64_t dim, float least_decay, float most_decay)
      : n(n),
        dim(dim),
        r(Uniform(n * dim, -1, 1, 1)),
        w(Uniform(n * dim, least_decay, most_decay, 2)),
        k(Uniform(n * dim, -1, 1, 3)),
        v(Uniform(n * dim, -1, 1, 4)),
        kappa(Uniform(n * dim, -1, 1, 5)),
        a(Uniform(n * dim, 0, 1, 6)),
        initial(Uniform(dim * dim, -1, 1, 7)) {
    for (int64_t t = 0; t < n; ++t) {
      float squares = 0;
      for (int64_t c = 0; c < dim; ++c) squares += kappa[t * dim + c] * kappa[t * dim + c];
      for (int64_t c = 0; c < dim; ++c) kappa[t * dim + c] /= std::sqrt(squares);
    }
  }

  // Tokens first..first+count.
  Wkv7Head Head(int64_t first, int64_t count, float* state, float* out) const {
    const auto view = [&](const std::vector<float>& x) {
      return MatrixView<const float>(x.data() + first * dim, count, dim);
    };
    return {view(r), view(w), view(k), view(v), view(kappa), view(a), state, {out + first * dim, count, dim}};
  }

  int64_t n, dim;
  std::vector<float> r, w, k, v, kappa, a, initial;
};

struct Result {
  std::vector<float> out, state;
  bool operator==(const Result& other) const { return out == other.out && state == other.state; }
};

Result RunInPieces(const Problem& problem, int64_t piece) {
  ThreadPool pool(1);
  Result result = {std::vector<float>(problem.n * problem.dim), problem.initial};
  for (int64_t first = 0; first < problem.n; first += piece) {
    const Wkv7Head head =
        problem.Head(first, std::min(piece, problem.n - first), result.state.data(), result.out.data());
    Wkv7({&head, 1}, pool);
  }
  return result;
}

void ExpectMatchesReference(const Problem& problem, const Result& result) {
  const int64_t dim = problem.dim;
  std::vector<std::vector<double>> state;
  for (int64_t i = 0; i < dim; ++i) state.push_back(ToDouble(&problem.initial[i * dim], dim));
  // Rounding errors add up over channels and, where hardly anything decays, over tokens.
  const double tolerance = 1e-7 * static_cast<double>(dim) * std::sqrt(static_cast<double>(problem.n));
  for (int64_t t = 0; t < problem.n; ++t) {
    reference::Wkv7Token token;
    token.r = ToDouble(&problem.r[t * dim], dim);
    token.w = ToDouble(&problem.w[t * dim], dim);
    token.k = ToDouble(&problem.k[t * dim], dim);
    token.v = ToDouble(&problem.v[t * dim], dim);
    token.kappa = ToDouble(&problem.kappa[t * dim], dim);
    token.a = ToDouble(&problem.a[t * dim], dim);
    const std::vector<double> expected = reference::Wkv7Step(token, state);
    for (int64_t c = 0; c < dim; ++c) {
      ASSERT_NEAR(result.out[t * dim + c], expected[c], tolerance * (1 + std::abs(expected[c]))) << t << ", " << c;
    }
  }
  for (int64_t i = 0; i < dim; ++i) {
    for (int64_t c = 0; c < dim; ++c) ASSERT_NEAR(result.state[i * dim + c], state[i][c], tolerance * 4);
  }
}

TEST(Wkv7Test, MatchesReferenceForAnyHeadSize) {
  ForEveryTarget([] {
    for (int64_t dim : {1, 2, 7, 16, 20, 31, 64, 72, 128}) {
      SCOPED_TRACE(dim);
      const Problem problem(9, dim, 0.55f, 0.999f);
      ExpectMatchesReference(problem, RunInPieces(problem, 9));
    }
  });
}

TEST(Wkv7Test, MatchesReferenceOverManyTokens) {
  ForEveryTarget([] {
    const Problem problem(300, 20, 0.55f, 0.999f);
    ExpectMatchesReference(problem, RunInPieces(problem, 300));
  });
}

TEST(Wkv7Test, MatchesReferenceWhenNothingOrEverythingDecays) {
  ForEveryTarget([] {
    const Problem forgets(40, 16, 0.0f, 1e-30f);
    ExpectMatchesReference(forgets, RunInPieces(forgets, 40));
    const Problem keeps(40, 16, 1.0f - 1e-6f, 1.0f);
    ExpectMatchesReference(keeps, RunInPieces(keeps, 40));
  });
}

TEST(Wkv7Test, SmallWholeNumbersByHand) {
  ForEveryTarget([] {
    // S = [[1, 2], [3, 4]], κ = (1, 0), a = (2, 0): κᵀS = (1, 2) is taken twice from row 0.
    std::vector<float> state = {1, 2, 3, 4};
    const std::vector<float> r = {1, 10}, w = {2, 1}, k = {1, 2}, v = {5, 6}, kappa = {1, 0}, a = {2, 0};
    std::vector<float> out(2);
    const auto view = [](const std::vector<float>& x) { return MatrixView<const float>(x.data(), 1, 2); };
    const Wkv7Head head = {view(r), view(w), view(k), view(v), view(kappa), view(a), state.data(), {out.data(), 1, 2}};
    ThreadPool pool(1);
    Wkv7({&head, 1}, pool);
    EXPECT_EQ(state, (std::vector<float>{2 - 2 + 5, 4 - 4 + 6, 3 + 10, 4 + 12}));
    EXPECT_EQ(out, (std::vector<float>{5 + 130, 6 + 160}));
  });
}

TEST(Wkv7Test, PiecesGiveTheSameBitsAsTheWhole) {
  ForEveryTarget([] {
    for (int64_t dim : {7, 16, 20, 64}) {
      const Problem problem(23, dim, 0.55f, 0.999f);
      const Result whole = RunInPieces(problem, 23);
      for (int64_t piece : {1, 2, 5, 22}) EXPECT_TRUE(RunInPieces(problem, piece) == whole) << dim << ", " << piece;
    }
  });
}

TEST(Wkv7Test, ThreadsAndOtherHeadsChangeNoBit) {
  ForEveryTarget([] {
    const Problem problem(11, 20, 0.55f, 0.999f);
    const Result alone = RunInPieces(problem, 11);
    for (int threads : {1, 2, 3, 8}) {
      ThreadPool pool(threads, /*oversubscribe=*/true);
      std::vector<Result> results(5, Result{std::vector<float>(11 * 20), problem.initial});
      std::vector<Wkv7Head> heads;
      for (Result& result : results) heads.push_back(problem.Head(0, 11, result.state.data(), result.out.data()));
      Wkv7(heads, pool);
      for (const Result& result : results) EXPECT_TRUE(result == alone) << threads;
    }
  });
}

TEST(Wkv7Test, NoTokensLeaveTheState) {
  const Problem problem(0, 8, 0.55f, 0.999f);
  EXPECT_EQ(RunInPieces(problem, 1).state, problem.initial);
}

TEST(Wkv7KeysTest, MatchesReferencePerHead) {
  ForEveryTarget([] {
    for (int64_t dim : {1, 7, 16, 20, 64}) {
      const int64_t d = 3 * dim;
      const std::vector<float> key = Uniform(2 * d, -1, 1, 1), a = Uniform(2 * d, 0, 1, 2);
      const std::vector<float> k_k = Uniform(d, 0.5f, 1, 3), k_a = Uniform(d, 0, 1, 4);
      std::vector<float> k = key, kappa(2 * d);
      Wkv7Keys({k.data(), 2, d}, {a.data(), 2, d}, k_k, k_a, dim, {kappa.data(), 2, d});
      for (int64_t at = 0; at < 2 * d; at += dim) {
        const int64_t column = at % d;
        std::vector<double> expected_k = ToDouble(&key[at], dim), expected_kappa;
        reference::Wkv7Keys(ToDouble(&a[at], dim), ToDouble(&k_k[column], dim), ToDouble(&k_a[column], dim), expected_k,
                            expected_kappa);
        for (int64_t c = 0; c < dim; ++c) {
          EXPECT_NEAR(k[at + c], expected_k[c], 1e-6);
          EXPECT_NEAR(kappa[at + c], expected_kappa[c], 1e-6);
        }
      }
    }
  });
}

TEST(Wkv7KeysTest, ZeroKeysStayZero) {
  ForEveryTarget([] {
    std::vector<float> k(20, 0.0f), kappa(20, 1.0f);
    const std::vector<float> ones(20, 1.0f);
    Wkv7Keys({k.data(), 1, 20}, {ones.data(), 1, 20}, ones, ones, 20, {kappa.data(), 1, 20});
    EXPECT_EQ(kappa, std::vector<float>(20, 0.0f));
  });
}

TEST(Wkv7BonusAndGateTest, AddsTheBonusOfEachHeadThenGates) {
  ForEveryTarget([] {
    for (int64_t dim : {1, 7, 16, 20, 64}) {
      const int64_t d = 2 * dim;
      const std::vector<float> before = Uniform(3 * d, -1, 1, 1), r = Uniform(3 * d, -1, 1, 2);
      const std::vector<float> k = Uniform(3 * d, -1, 1, 3), v = Uniform(3 * d, -1, 1, 4), r_k = Uniform(d, -1, 1, 5);
      const std::vector<float> g = Uniform(3 * d, -1, 1, 6);
      std::vector<float> out = before;
      Wkv7BonusAndGate({out.data(), 3, d}, {r.data(), 3, d}, {k.data(), 3, d}, {v.data(), 3, d}, r_k, dim,
                       {g.data(), 3, d});
      for (int64_t at = 0; at < 3 * d; at += dim) {
        double bonus = 0;
        for (int64_t c = 0; c < dim; ++c) bonus += double{r[at + c]} * k[at + c] * r_k[at % d + c];
        for (int64_t c = 0; c < dim; ++c) {
          EXPECT_NEAR(out[at + c], (before[at + c] + bonus * v[at + c]) * g[at + c],
                      1e-7 * static_cast<double>(dim) + 1e-6);
        }
      }
    }
  });
}

}  // namespace
}  // namespace kvm
