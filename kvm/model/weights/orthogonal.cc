#include "kvm/model/weights/orthogonal.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "kvm/kernels/cpu/matmul.h"
#include "kvm/kernels/tensor.h"

namespace kvm {
namespace {

constexpr int64_t kLanes = 16;
// Rows that are orthogonalized one by one; larger groups go through matrix products.
constexpr int64_t kLeafRows = 16;

// Sums in lanes with a fixed trip count, which compilers vectorize without being allowed to reorder.
double Dot(const float* x, const float* y, int64_t n) {
  std::array<float, kLanes> lanes = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[static_cast<size_t>(lane)] += x[i + lane] * y[i + lane];
  }
  double sum = 0;
  for (; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  for (const float lane : lanes) sum += static_cast<double>(lane);
  return sum;
}

// y -= factor·x.
void SubtractScaled(float factor, const float* __restrict x, float* __restrict y, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) y[i + lane] -= factor * x[i + lane];
  }
  for (; i < n; ++i) y[i] -= factor * x[i];
}

void Scale(float factor, absl::Span<float> x) {
  for (float& value : x) value *= factor;
}

Tensor Transposed(MatrixView<const float> matrix, ThreadPool& pool) {
  Tensor transposed(DType::kF32, {matrix.cols, matrix.rows});
  float* out = transposed.floats().data();
  constexpr int64_t kTile = 32;
  pool.ParallelForRanges(matrix.cols, kTile, [&](int64_t begin, int64_t end) {
    for (int64_t first = 0; first < matrix.rows; first += kTile) {
      const int64_t last = std::min(matrix.rows, first + kTile);
      for (int64_t c = begin; c < end; ++c) {
        for (int64_t r = first; r < last; ++r) out[c * matrix.rows + r] = matrix.row(r)[c];
      }
    }
  });
  return transposed;
}

// Removes from each row of `rows` its part in the span of the orthonormal rows of `basis`.
void Project(MatrixView<const float> basis, MatrixView<float> rows, ThreadPool& pool) {
  Tensor products(DType::kF32, {rows.rows, basis.rows});
  MatrixView<float> p(products.floats().data(), rows.rows, basis.rows);
  {
    const TensorView weight{DType::kF32, {basis.rows, basis.cols}, basis.data};
    MatMul(rows, PackedMatrix::Pack(weight, DType::kF32), p, pool);
  }
  Tensor parts(DType::kF32, {rows.rows, rows.cols});
  MatrixView<float> part(parts.floats().data(), rows.rows, rows.cols);
  {
    const PackedMatrix weight = PackedMatrix::Pack(Transposed(basis, pool).view(), DType::kF32);
    MatMul(p, weight, part, pool);
  }
  pool.ParallelFor(rows.rows, [&](int64_t r) { SubtractScaled(1, part.row(r), rows.row(r), rows.cols); });
}

// One pass of Gram–Schmidt over dense rows: the first half, then the second half less its part in the first.
void Orthonormalize(MatrixView<float> rows, ThreadPool& pool, absl::FunctionRef<bool()> cancelled) {
  if (cancelled()) return;
  if (rows.rows > kLeafRows) {
    const int64_t half = (rows.rows / 2 + kLeafRows - 1) / kLeafRows * kLeafRows;
    const MatrixView<float> first = rows.Rows(0, half);
    const MatrixView<float> second = rows.Rows(half, rows.rows - half);
    Orthonormalize(first, pool, cancelled);
    if (cancelled()) return;
    Project(first, second, pool);
    Orthonormalize(second, pool, cancelled);
    return;
  }
  for (int64_t r = 0; r < rows.rows; ++r) {
    float* row = rows.row(r);
    for (int64_t before = 0; before < r; ++before) {
      SubtractScaled(static_cast<float>(Dot(rows.row(before), row, rows.cols)), rows.row(before), row, rows.cols);
    }
    const double norm = std::sqrt(Dot(row, row, rows.cols));
    Scale(static_cast<float>(1 / std::max(norm, 1e-30)), rows.row_span(r));
  }
}

}  // namespace

void FillOrthogonal(const RandomStream& random, double gain, MatrixView<float> matrix, ThreadPool& pool,
                    absl::FunctionRef<bool()> cancelled) {
  const bool transpose = matrix.rows > matrix.cols;
  const int64_t count = std::min(matrix.rows, matrix.cols);
  const int64_t length = std::max(matrix.rows, matrix.cols);
  Tensor vectors(DType::kF32, {count, length});
  MatrixView<float> rows(vectors.floats().data(), count, length);
  constexpr int64_t kGrain = 2048;
  const int64_t elements = count * length;
  pool.ParallelForRanges((elements + 1) / 2, kGrain, [&](int64_t begin, int64_t end) {
    if (cancelled()) return;
    for (int64_t i = begin; i < end; ++i) {
      const std::pair<double, double> pair = random.Normals(i);
      rows.data[2 * i] = static_cast<float>(pair.first);
      if (2 * i + 1 < elements) rows.data[2 * i + 1] = static_cast<float>(pair.second);
    }
  });
  // The first pass loses orthogonality where a row was nearly within the span of those before; the second restores it.
  Orthonormalize(rows, pool, cancelled);
  Orthonormalize(rows, pool, cancelled);
  if (gain != 1) {
    pool.ParallelFor(count, [&](int64_t r) { Scale(static_cast<float>(gain), rows.row_span(r)); });
  }
  if (transpose) vectors = Transposed(rows, pool);
  const absl::Span<const float> values = vectors.floats();
  std::copy(values.begin(), values.end(), matrix.data);
}

}  // namespace kvm
