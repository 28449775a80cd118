#include "kvm/kernels/cpu/recurrence/chunked_delta.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/cpu/vectors/every_target.h"
#include "kvm/kernels/reference/delta_rule.h"
#include "kvm/kernels/reference/wkv7.h"

namespace kvm {
namespace {

using Floats = std::vector<float>;

// What is allowed against the double step form, relative to the largest magnitude of outputs or of the state.
constexpr double kTolerance = 1e-5;

Floats Uniform(int64_t n, float low, float high, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> distribution(low, high);
  Floats x(n);
  for (float& e : x) e = distribution(random);
  return x;
}

// Rows of length 1.
Floats UnitRows(int64_t n, int64_t dim, uint32_t seed) {
  Floats x = Uniform(n * dim, -1, 1, seed);
  for (int64_t t = 0; t < n; ++t) {
    double squares = 1e-12;
    for (int64_t c = 0; c < dim; ++c) squares += double{x[t * dim + c]} * x[t * dim + c];
    for (int64_t c = 0; c < dim; ++c) x[t * dim + c] /= static_cast<float>(std::sqrt(squares));
  }
  return x;
}

struct DecayKind {
  std::string name;
  std::vector<double> logs;  // each decay is exp of one of these, at random
};

const std::vector<DecayKind>& DecayKinds() {
  static const auto* const kinds = new std::vector<DecayKind>{
      {"moderate", {-0.6, -0.3, -0.1, -0.01}},
      {"keeps everything", {0}},
      {"keeps nearly everything", {0, -1e-6, -1e-7}},
      {"halves many times", {-2.25}},  // −144 over 64 tokens
      {"forgets", {-29}},
      {"forgets at once", {-1e4}},
      {"mixed", {0, -1e-7, -0.01, -2.25, -29, -1e4}},
  };
  return *kinds;
}

Floats Decays(const DecayKind& kind, int64_t n) {
  std::mt19937 random(8);
  Floats x(n);
  for (float& e : x) e = static_cast<float>(std::exp(kind.logs[random() % kind.logs.size()]));
  return x;
}

struct Result {
  Floats out, state;
};

using Doubles = std::vector<double>;

Doubles Row(const Floats& x, int64_t row, int64_t dim) {
  return Doubles(x.begin() + row * dim, x.begin() + (row + 1) * dim);
}

// Largest |x − expected| over the largest |expected|; infinite where x is not a number.
double RelativeError(const Floats& x, const Doubles& expected) {
  if (x.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double error = 0, largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(x[i])) return std::numeric_limits<double>::infinity();
    error = std::max(error, std::abs(x[i] - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  return x.empty() ? 0 : error / largest;
}

struct DoubleResult {
  Doubles out;
  std::vector<Doubles> state;

  Doubles flat_state() const {
    Doubles flat;
    for (const Doubles& row : state) flat.insert(flat.end(), row.begin(), row.end());
    return flat;
  }
};

void ExpectNear(const Result& result, const DoubleResult& expected) {
  EXPECT_LE(RelativeError(result.out, expected.out), kTolerance);
  EXPECT_LE(RelativeError(result.state, expected.flat_state()), kTolerance);
}

struct WkvProblem {
  WkvProblem(int64_t n, int64_t dim, const DecayKind& decays)
      : n(n),
        dim(dim),
        r(Uniform(n * dim, -1, 1, 1)),
        w(Decays(decays, n * dim)),
        k(Uniform(n * dim, -1, 1, 2)),
        v(Uniform(n * dim, -1, 1, 3)),
        kappa(UnitRows(n, dim, 4)),
        a(Uniform(n * dim, 0, 1, 5)),
        initial(Uniform(dim * dim, -1, 1, 6)) {}

  Wkv7Head Head(int64_t first, int64_t count, Result& result) const {
    const auto view = [&](const Floats& x) { return MatrixView<const float>(x.data() + first * dim, count, dim); };
    return {view(r),
            view(w),
            view(k),
            view(v),
            view(kappa),
            view(a),
            result.state.data(),
            {result.out.data() + first * dim, count, dim}};
  }
  Result NewResult() const { return {Floats(n * dim), initial}; }
  Result Run(void (*kernel)(absl::Span<const Wkv7Head>, ThreadPool&)) const {
    Result result = NewResult();
    ThreadPool pool(1);
    kernel({Head(0, n, result)}, pool);
    return result;
  }
  DoubleResult Reference() const {
    DoubleResult expected;
    for (int64_t i = 0; i < dim; ++i) expected.state.push_back(Row(initial, i, dim));
    for (int64_t t = 0; t < n; ++t) {
      const auto row = [&](const Floats& x) { return Row(x, t, dim); };
      const Doubles out = reference::Wkv7Step({row(r), row(w), row(k), row(v), row(kappa), row(a)}, expected.state);
      expected.out.insert(expected.out.end(), out.begin(), out.end());
    }
    return expected;
  }

  int64_t n, dim;
  Floats r, w, k, v, kappa, a, initial;
};

struct DeltaProblem {
  // One decay a token, or one for each key channel. `most_beta` is 2 where negative eigenvalues are allowed.
  DeltaProblem(int64_t n, int64_t keys, int64_t values, bool per_channel, const DecayKind& decays, float most_beta = 1)
      : n(n),
        keys(keys),
        values(values),
        decays(per_channel ? keys : 1),
        q(UnitRows(n, keys, 1)),
        k(UnitRows(n, keys, 2)),
        v(Uniform(n * values, -1, 1, 3)),
        beta(Uniform(n, 0, most_beta, 4)),
        decay(Decays(decays, n * this->decays)),
        initial(Uniform(keys * values, -1, 1, 5)) {}

  DeltaRuleHead Head(int64_t first, int64_t count, Result& result) const {
    const auto view = [&](const Floats& x, int64_t dim) {
      return MatrixView<const float>(x.data() + first * dim, count, dim);
    };
    return {view(q, keys),
            view(k, keys),
            view(v, values),
            view(decay, decays),
            view(beta, 1),
            result.state.data(),
            {result.out.data() + first * values, count, values}};
  }
  Result NewResult() const { return {Floats(n * values), initial}; }
  Result Run(void (*kernel)(absl::Span<const DeltaRuleHead>, ThreadPool&) = ChunkedDeltaRule) const {
    Result result = NewResult();
    ThreadPool pool(1);
    kernel({Head(0, n, result)}, pool);
    return result;
  }
  DoubleResult Reference() const {
    DoubleResult expected;
    for (int64_t i = 0; i < keys; ++i) expected.state.push_back(Row(initial, i, values));
    for (int64_t t = 0; t < n; ++t) {
      reference::DeltaRuleToken token = {Row(q, t, keys), Row(k, t, keys), Row(v, t, values), {}, beta[t]};
      for (int64_t c = 0; c < keys; ++c) {
        token.log_decay.push_back(std::log(double{decay[t * decays + (decays > 1 ? c : 0)]}));
      }
      const Doubles out = reference::DeltaRuleStep(token, expected.state);
      expected.out.insert(expected.out.end(), out.begin(), out.end());
    }
    return expected;
  }

  int64_t n, keys, values, decays;
  Floats q, k, v, beta, decay, initial;
};

constexpr int64_t kLengths[] = {1, 15, 16, 17, 63, 64, 65, 130};

TEST(ChunkedWkv7Test, MatchesTheDoubleStepFormForAnyLengthHeadSizeAndDecay) {
  for (const DecayKind& decays : DecayKinds()) {
    for (int64_t dim : {3, 16, 64}) {
      for (int64_t n : kLengths) {
        SCOPED_TRACE(testing::Message() << decays.name << ", dim " << dim << ", " << n << " tokens");
        const WkvProblem problem(n, dim, decays);
        const DoubleResult expected = problem.Reference();
        ForEveryTarget([&] { ExpectNear(problem.Run(ChunkedWkv7), expected); });
      }
    }
  }
}

TEST(ChunkedWkv7Test, IsCloseToTheStepKernel) {
  for (const DecayKind& decays : DecayKinds()) {
    SCOPED_TRACE(decays.name);
    const WkvProblem problem(130, 64, decays);
    ForEveryTarget([&] {
      const Result chunks = problem.Run(ChunkedWkv7), steps = problem.Run(Wkv7);
      EXPECT_LE(RelativeError(chunks.out, Doubles(steps.out.begin(), steps.out.end())), kTolerance);
      EXPECT_LE(RelativeError(chunks.state, Doubles(steps.state.begin(), steps.state.end())), kTolerance);
    });
  }
}

TEST(ChunkedWkv7Test, SmallWholeNumbersByHand) {
  ForEveryTarget([] {
    // S = [[1, 2], [3, 4]], κ = (1, 0), a = (2, 0), twice the same token: (1, 2) is taken twice from row 0, then
    // (5, 6) added to row 0 once and to row 1 twice: S = [[4, 4], [13, 16]]; and again: S = [[1, 2], [23, 28]].
    Result result = {Floats(4), {1, 2, 3, 4}};
    const Floats r = {1, 10, 1, 10}, w = {1, 1, 1, 1}, k = {1, 2, 1, 2}, v = {5, 6, 5, 6};
    const Floats kappa = {1, 0, 1, 0}, a = {2, 0, 2, 0};
    const auto view = [](const Floats& x) { return MatrixView<const float>(x.data(), 2, 2); };
    ThreadPool pool(1);
    ChunkedWkv7(
        {{view(r), view(w), view(k), view(v), view(kappa), view(a), result.state.data(), {result.out.data(), 2, 2}}},
        pool);
    EXPECT_EQ(result.state, (Floats{1, 2, 23, 28}));
    EXPECT_EQ(result.out, (Floats{134, 164, 231, 282}));
  });
}

TEST(ChunkedDeltaRuleTest, MatchesTheDoubleStepFormForAnyLengthHeadSizeAndDecay) {
  const std::vector<std::pair<int64_t, int64_t>> sizes = {{16, 16}, {8, 16}, {5, 11}, {64, 64}, {16, 40}};
  for (const DecayKind& decays : DecayKinds()) {
    for (const auto& [keys, values] : sizes) {
      for (bool per_channel : {false, true}) {
        for (int64_t n : kLengths) {
          SCOPED_TRACE(testing::Message() << decays.name << ", " << keys << "x" << values << ", per channel "
                                          << per_channel << ", " << n << " tokens");
          const DeltaProblem problem(n, keys, values, per_channel, decays);
          const DoubleResult expected = problem.Reference();
          ForEveryTarget([&] { ExpectNear(problem.Run(), expected); });
        }
      }
    }
  }
}

TEST(ChunkedDeltaRuleTest, IsCloseToTheStepKernel) {
  for (const DecayKind& decays : DecayKinds()) {
    SCOPED_TRACE(decays.name);
    const DeltaProblem problem(130, 64, 64, true, decays);
    ForEveryTarget([&] {
      const Result chunks = problem.Run(), steps = problem.Run(DeltaRule);
      EXPECT_LE(RelativeError(chunks.out, Doubles(steps.out.begin(), steps.out.end())), kTolerance);
      EXPECT_LE(RelativeError(chunks.state, Doubles(steps.state.begin(), steps.state.end())), kTolerance);
    });
  }
}

TEST(ChunkedDeltaRuleTest, NegativeEigenvalues) {
  const DeltaProblem problem(130, 16, 32, true, DecayKinds()[2], 2);
  const DoubleResult expected = problem.Reference();
  ForEveryTarget([&] { ExpectNear(problem.Run(), expected); });
}

TEST(ChunkedDeltaRuleTest, SmallWholeNumbersByHand) {
  ForEveryTarget([] {
    // S = [2, 4] halves to [1, 2]; u = 2·(10 − (1 + 2)) = 14: S = [15, 16]; out = 15 + 2·16.
    // Then to [7.5, 8] and u = 1·(4 − 7.5): S = [4, 8]; out = 4 − 8.
    Result result = {Floats(2), {2, 4}};
    const Floats q = {1, 2, 1, -1}, k = {1, 1, 1, 0}, v = {10, 4}, beta = {2, 1}, decay = {0.5f, 0.5f};
    ThreadPool pool(1);
    ChunkedDeltaRule({{{q.data(), 2, 2},
                       {k.data(), 2, 2},
                       {v.data(), 2, 1},
                       {decay.data(), 2, 1},
                       {beta.data(), 2, 1},
                       result.state.data(),
                       {result.out.data(), 2, 1}}},
                     pool);
    EXPECT_EQ(result.state, (Floats{4, 8}));
    EXPECT_EQ(result.out, (Floats{47, -4}));
  });
}

// Outputs of tokens before t, as bits: −0 is not 0.
bool SameBitsBefore(const Result& x, const Result& y, int64_t t, int64_t dim) {
  return std::equal(x.out.begin(), x.out.begin() + t * dim, y.out.begin(),
                    [](float a, float b) { return a == b && std::signbit(a) == std::signbit(b); });
}

TEST(ChunkedWkv7Test, NoTokenChangesABitBeforeIt) {
  ForEveryTarget([] {
    const int64_t n = 40, dim = 20;
    const WkvProblem problem(n, dim, DecayKinds().back());
    const Result whole = problem.Run(ChunkedWkv7);
    for (int64_t t = 0; t < n; ++t) {
      WkvProblem changed = problem;
      for (Floats* x : {&changed.r, &changed.k, &changed.v, &changed.kappa, &changed.a}) {
        std::fill_n(x->begin() + t * dim, dim, std::numeric_limits<float>::infinity());
      }
      std::fill_n(changed.w.begin() + t * dim, dim, 0.5f);
      EXPECT_TRUE(SameBitsBefore(changed.Run(ChunkedWkv7), whole, t, dim)) << t;
      Result start = problem.NewResult();
      ThreadPool pool(1);
      ChunkedWkv7({problem.Head(0, t, start)}, pool);
      EXPECT_TRUE(SameBitsBefore(start, whole, t, dim)) << "the first " << t;
    }
  });
}

TEST(ChunkedDeltaRuleTest, NoTokenChangesABitBeforeIt) {
  ForEveryTarget([] {
    const int64_t n = 40, keys = 12, values = 20;
    const DeltaProblem problem(n, keys, values, true, DecayKinds().back());
    const Result whole = problem.Run();
    for (int64_t t = 0; t < n; ++t) {
      DeltaProblem changed = problem;
      for (Floats* x : {&changed.q, &changed.k}) {
        std::fill_n(x->begin() + t * keys, keys, std::numeric_limits<float>::infinity());
      }
      std::fill_n(changed.decay.begin() + t * keys, keys, 0.5f);
      std::fill_n(changed.v.begin() + t * values, values, -1e30f);
      changed.beta[t] = 0.25f;
      EXPECT_TRUE(SameBitsBefore(changed.Run(), whole, t, values)) << t;
      Result start = problem.NewResult();
      ThreadPool pool(1);
      ChunkedDeltaRule({problem.Head(0, t, start)}, pool);
      EXPECT_TRUE(SameBitsBefore(start, whole, t, values)) << "the first " << t;
    }
  });
}

TEST(ChunkedWkv7Test, StateCarriesOverBetweenCalls) {
  const WkvProblem problem(130, 16, DecayKinds()[0]);
  const DoubleResult expected = problem.Reference();
  ForEveryTarget([&] {
    for (int64_t piece : {1, 7, 16, 33}) {
      Result result = problem.NewResult();
      ThreadPool pool(1);
      for (int64_t t = 0; t < problem.n; t += piece) {
        ChunkedWkv7({problem.Head(t, std::min(piece, problem.n - t), result)}, pool);
      }
      ExpectNear(result, expected);
    }
  });
}

TEST(ChunkedDeltaRuleTest, StateCarriesOverBetweenCalls) {
  const DeltaProblem problem(130, 16, 24, true, DecayKinds()[0]);
  const DoubleResult expected = problem.Reference();
  ForEveryTarget([&] {
    for (int64_t piece : {1, 7, 16, 33}) {
      Result result = problem.NewResult();
      ThreadPool pool(1);
      for (int64_t t = 0; t < problem.n; t += piece) {
        ChunkedDeltaRule({problem.Head(t, std::min(piece, problem.n - t), result)}, pool);
      }
      ExpectNear(result, expected);
    }
  });
}

TEST(ChunkedDeltaRuleTest, ThreadsAndOtherHeadsChangeNoBit) {
  ForEveryTarget([] {
    const DeltaProblem problem(35, 16, 24, true, DecayKinds()[0]);
    const WkvProblem wkv_problem(35, 20, DecayKinds()[0]);
    const Result alone = problem.Run(), wkv_alone = wkv_problem.Run(ChunkedWkv7);
    for (int threads : {1, 2, 3, 8}) {
      ThreadPool pool(threads, /*oversubscribe=*/true);
      std::vector<Result> results(5, problem.NewResult()), wkv_results(5, wkv_problem.NewResult());
      std::vector<DeltaRuleHead> heads;
      std::vector<Wkv7Head> wkv_heads;
      for (Result& result : results) heads.push_back(problem.Head(0, problem.n, result));
      for (Result& result : wkv_results) wkv_heads.push_back(wkv_problem.Head(0, wkv_problem.n, result));
      ChunkedDeltaRule(heads, pool);
      ChunkedWkv7(wkv_heads, pool);
      for (const Result& result : results) {
        EXPECT_EQ(result.out, alone.out);
        EXPECT_EQ(result.state, alone.state);
      }
      for (const Result& result : wkv_results) {
        EXPECT_EQ(result.out, wkv_alone.out);
        EXPECT_EQ(result.state, wkv_alone.state);
      }
    }
  });
}

TEST(ChunkedDeltaRuleTest, NoTokensLeaveTheState) {
  const DeltaProblem problem(0, 8, 16, true, DecayKinds()[0]);
  EXPECT_EQ(problem.Run().state, problem.initial);
  const WkvProblem wkv_problem(0, 8, DecayKinds()[0]);
  EXPECT_EQ(wkv_problem.Run(ChunkedWkv7).state, wkv_problem.initial);
}

}  // namespace
}  // namespace kvm
