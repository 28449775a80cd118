#include "kvm/kernels/cpu/recurrence/short_convolution.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/cpu/vectors/every_target.h"
#include "kvm/kernels/reference/short_convolution.h"

namespace kvm {
namespace {

std::vector<float> Uniform(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> distribution(-2, 2);
  std::vector<float> x(n);
  for (float& e : x) e = distribution(random);
  return x;
}

struct Problem {
  Problem(int64_t n, int64_t channels, int64_t size, bool with_bias)
      : n(n),
        channels(channels),
        size(size),
        u(Uniform(n * channels, 1)),
        history(Uniform((size - 1) * channels, 2)),
        taps(Uniform(size * channels, 3)),
        bias(Uniform(with_bias ? channels : 0, 4)) {}

  ConvolutionTaps Taps() const { return {{taps.data(), size, channels}, bias}; }

  int64_t n, channels, size;
  std::vector<float> u, history, taps, bias;
};

struct Result {
  std::vector<float> out, history;
  bool operator==(const Result& other) const { return out == other.out && history == other.history; }
};

// In calls of `piece` tokens, each of which is worked on in blocks of `block` rows.
Result RunInPieces(const Problem& problem, int64_t piece, int64_t block) {
  const int64_t d = problem.channels;
  Result result = {std::vector<float>(problem.n * d), problem.history};
  const MatrixView<float> history(result.history.data(), problem.size - 1, d);
  for (int64_t first = 0; first < problem.n; first += piece) {
    const int64_t count = std::min(piece, problem.n - first);
    const MatrixView<const float> u(problem.u.data() + first * d, count, d);
    for (int64_t begin = 0; begin < count; begin += block) {
      const int64_t rows = std::min(block, count - begin);
      ShortConvolution(u, begin, rows, history, problem.Taps(), {result.out.data() + (first + begin) * d, rows, d});
    }
    AdvanceHistory(u, history);
  }
  return result;
}

TEST(ShortConvolutionTest, MatchesReferenceForAnySizes) {
  ForEveryTarget([] {
    for (int64_t channels : {1, 7, 16, 37}) {
      for (int64_t size : {1, 2, 3, 4, 16}) {
        for (const bool with_bias : {false, true}) {
          SCOPED_TRACE(::testing::Message() << channels << ", " << size << ", " << with_bias);
          const Problem problem(9, channels, size, with_bias);
          const Result result = RunInPieces(problem, 9, 9);
          for (int64_t c = 0; c < channels; ++c) {
            const auto column = [&](const std::vector<float>& x) {
              std::vector<double> values;
              for (size_t i = c; i < x.size(); i += channels) values.push_back(x[i]);
              return values;
            };
            const std::vector<double> expected = reference::ShortConvolution(
                column(problem.history), column(problem.u), column(problem.taps), with_bias ? problem.bias[c] : 0.0);
            for (int64_t t = 0; t < problem.n; ++t) {
              EXPECT_NEAR(result.out[t * channels + c], expected[t], 4e-6 * (1 + std::abs(expected[t]))) << t;
            }
          }
        }
      }
    }
  });
}

TEST(ShortConvolutionTest, PiecesAndBlocksGiveTheSameBits) {
  ForEveryTarget([] {
    for (int64_t size : {1, 4, 16}) {
      const Problem problem(23, 11, size, true);
      const Result whole = RunInPieces(problem, 23, 23);
      for (int64_t piece : {1, 2, 3, 5, 22, 23}) {
        for (int64_t block : {1, 4}) EXPECT_TRUE(RunInPieces(problem, piece, block) == whole) << size << ", " << piece;
      }
    }
  });
}

TEST(AdvanceHistoryTest, KeepsTheLastRowsLatestLast) {
  std::vector<float> history = {1, 10, 2, 20, 3, 30};
  const MatrixView<float> rows(history.data(), 3, 2);
  const std::vector<float> u = {4, 40, 5, 50, 6, 60, 7, 70};
  AdvanceHistory({u.data(), 2, 2}, rows);
  EXPECT_EQ(history, (std::vector<float>{3, 30, 4, 40, 5, 50}));
  AdvanceHistory({u.data(), 4, 2}, rows);
  EXPECT_EQ(history, (std::vector<float>{5, 50, 6, 60, 7, 70}));
  AdvanceHistory({u.data(), 0, 2}, rows);
  EXPECT_EQ(history, (std::vector<float>{5, 50, 6, 60, 7, 70}));
}

}  // namespace
}  // namespace kvm
