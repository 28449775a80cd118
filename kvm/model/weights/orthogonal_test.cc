#include "kvm/model/weights/orthogonal.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace kvm {
namespace {

std::vector<float> Orthogonal(int64_t rows, int64_t cols, double gain, int threads, uint64_t seed = 1) {
  ThreadPool pool(threads, /*oversubscribe=*/true);
  std::vector<float> matrix(static_cast<size_t>(rows * cols));
  FillOrthogonal(RandomStream(seed, "m"), gain, MatrixView<float>(matrix.data(), rows, cols), pool);
  return matrix;
}

// The largest deviation of M·Mᵀ (or Mᵀ·M when there are more rows than columns) from gain²·I.
double Deviation(const std::vector<float>& matrix, int64_t rows, int64_t cols, double gain) {
  const int64_t count = std::min(rows, cols), length = std::max(rows, cols);
  const auto at = [&](int64_t vector, int64_t i) {
    return static_cast<double>(matrix[static_cast<size_t>(rows <= cols ? vector * cols + i : i * cols + vector)]);
  };
  double worst = 0;
  for (int64_t a = 0; a < count; ++a) {
    for (int64_t b = 0; b <= a; ++b) {
      double dot = 0;
      for (int64_t i = 0; i < length; ++i) dot += at(a, i) * at(b, i);
      worst = std::max(worst, std::abs(dot - (a == b ? gain * gain : 0)));
    }
  }
  return worst;
}

TEST(FillOrthogonal, ShorterSideIsOrthonormal) {
  const std::vector<std::pair<int64_t, int64_t>> shapes = {{1, 1},   {1, 7},   {7, 1},     {16, 16},  {17, 17},
                                                           {33, 50}, {50, 33}, {500, 500}, {257, 96}, {96, 257}};
  for (const auto& [rows, cols] : shapes) {
    const std::vector<float> matrix = Orthogonal(rows, cols, 1, 2);
    EXPECT_LT(Deviation(matrix, rows, cols, 1), 1e-5) << rows << " x " << cols;
  }
}

TEST(FillOrthogonal, AppliesTheGain) { EXPECT_LT(Deviation(Orthogonal(40, 24, 0.5, 1), 40, 24, 0.5), 1e-5); }

TEST(FillOrthogonal, ThreadsChangeNoBit) {
  EXPECT_EQ(Orthogonal(70, 90, 1, 1), Orthogonal(70, 90, 1, 3));
  EXPECT_EQ(Orthogonal(90, 70, 1, 1), Orthogonal(90, 70, 1, 2));
}

TEST(FillOrthogonal, SeedsMatter) { EXPECT_NE(Orthogonal(8, 8, 1, 1, 1), Orthogonal(8, 8, 1, 1, 2)); }

// Every direction is as likely as any other: entries of a random orthogonal matrix have variance 1/length.
TEST(FillOrthogonal, EntriesSpreadEvenly) {
  const std::vector<float> matrix = Orthogonal(64, 64, 1, 1);
  double sum = 0;
  for (const float x : matrix) sum += static_cast<double>(x);
  EXPECT_NEAR(sum, 0, 5 * 64 / 8.0);  // 64² entries of deviation 1/8
}

}  // namespace
}  // namespace kvm
