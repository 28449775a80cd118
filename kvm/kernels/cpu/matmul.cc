#include "kvm/kernels/cpu/matmul.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <vector>

#include "kvm/kernels/bfloat16.h"

// Highway includes this very file once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvm/kernels/cpu/matmul.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/highway.h"
#include "kvm/kernels/cpu/partial_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvm {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kPanel = PackedMatrix::kPanel;

// A vector never reaches over a panel's end: kPanel is a multiple of Lanes(D()).
using D = hn::CappedTag<float, kPanel>;
using V = hn::Vec<D>;

// Rows that one pass over a pair of weight vectors serves: 12 accumulators fit 16 registers and hide the latency of
// multiply-adds.
constexpr int64_t kTileRows = 6;

// Inputs per pass when there are many rows: 6 rows of x and the weights of 16 outputs stay in the first-level cache.
constexpr int64_t kInputBlock = 384;

HWY_INLINE V LoadWeights(const float* w) { return hn::LoadU(D(), w); }
HWY_INLINE V LoadWeights(const hwy::bfloat16_t* w) {
  return hn::PromoteTo(D(), hn::LoadU(hn::Rebind<hwy::bfloat16_t, D>(), w));
}

// The weights of Lanes(D()) neighbouring outputs, and where their sums go.
template <typename W>
struct Column {
  const W* weights;  // of the first input; the next input's lie kPanel further
  int64_t first;     // output
  size_t count;      // outputs that exist, the rest of the vector is padding
};

// The column that starts at output `first`; one past `end` gets some other's weights and has no outputs.
template <typename W>
HWY_INLINE Column<W> ColumnAt(const PackedMatrix& w, int64_t first_input, int64_t first, int64_t end) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(D()));
  const int64_t count = std::clamp<int64_t>(std::min(end, w.outputs()) - first, 0, lanes);
  if (count == 0) first = 0;
  const W* panel = static_cast<const W*>(w.panel(first / kPanel));
  return {panel + first_input * kPanel + first % kPanel, first, static_cast<size_t>(count)};
}

template <typename W>
HWY_INLINE void LoadRow(Column<W> c0, Column<W> c1, const float* row, V& sum0, V& sum1) {
  sum0 = LoadFirst(D(), row + c0.first, c0.count);
  sum1 = LoadFirst(D(), row + c1.first, c1.count);
}

template <typename W>
HWY_INLINE void StoreRow(V sum0, V sum1, Column<W> c0, Column<W> c1, float* row) {
  StoreFirst(sum0, D(), row + c0.first, c0.count);
  StoreFirst(sum1, D(), row + c1.first, c1.count);
}

HWY_INLINE void MulAddRow(float x, V w0, V w1, V& sum0, V& sum1) {
  const V xs = hn::Set(D(), x);
  sum0 = hn::MulAdd(xs, w0, sum0);
  sum1 = hn::MulAdd(xs, w1, sum1);
}

// Sums of kRows rows of x over `inputs` inputs in two columns. `resume` continues the sums that are in `out`.
template <int kRows, typename W>
void MultiplyTile(MatrixView<const float> x, Column<W> c0, Column<W> c1, int64_t inputs, bool resume,
                  MatrixView<float> out) {
  // Vectors cannot be array elements for every instruction set.
  V a0 = hn::Zero(D()), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0;
  V b0 = a0, b1 = a0, b2 = a0, b3 = a0, b4 = a0, b5 = a0;
  if (resume) {
    LoadRow(c0, c1, out.row(0), a0, b0);
    if constexpr (kRows > 1) LoadRow(c0, c1, out.row(1), a1, b1);
    if constexpr (kRows > 2) LoadRow(c0, c1, out.row(2), a2, b2);
    if constexpr (kRows > 3) LoadRow(c0, c1, out.row(3), a3, b3);
    if constexpr (kRows > 4) LoadRow(c0, c1, out.row(4), a4, b4);
    if constexpr (kRows > 5) LoadRow(c0, c1, out.row(5), a5, b5);
  }
  const float* HWY_RESTRICT x0 = x.row(0);
  const float* HWY_RESTRICT x1 = x.row(kRows > 1 ? 1 : 0);
  const float* HWY_RESTRICT x2 = x.row(kRows > 2 ? 2 : 0);
  const float* HWY_RESTRICT x3 = x.row(kRows > 3 ? 3 : 0);
  const float* HWY_RESTRICT x4 = x.row(kRows > 4 ? 4 : 0);
  const float* HWY_RESTRICT x5 = x.row(kRows > 5 ? 5 : 0);
  const W* HWY_RESTRICT weights0 = c0.weights;
  const W* HWY_RESTRICT weights1 = c1.weights;
#pragma GCC unroll 4
  for (int64_t i = 0; i < inputs; ++i) {
    const V w0 = LoadWeights(weights0 + i * kPanel);
    const V w1 = LoadWeights(weights1 + i * kPanel);
    MulAddRow(x0[i], w0, w1, a0, b0);
    if constexpr (kRows > 1) MulAddRow(x1[i], w0, w1, a1, b1);
    if constexpr (kRows > 2) MulAddRow(x2[i], w0, w1, a2, b2);
    if constexpr (kRows > 3) MulAddRow(x3[i], w0, w1, a3, b3);
    if constexpr (kRows > 4) MulAddRow(x4[i], w0, w1, a4, b4);
    if constexpr (kRows > 5) MulAddRow(x5[i], w0, w1, a5, b5);
  }
  StoreRow(a0, b0, c0, c1, out.row(0));
  if constexpr (kRows > 1) StoreRow(a1, b1, c0, c1, out.row(1));
  if constexpr (kRows > 2) StoreRow(a2, b2, c0, c1, out.row(2));
  if constexpr (kRows > 3) StoreRow(a3, b3, c0, c1, out.row(3));
  if constexpr (kRows > 4) StoreRow(a4, b4, c0, c1, out.row(4));
  if constexpr (kRows > 5) StoreRow(a5, b5, c0, c1, out.row(5));
}

// One row times eight columns from output `first` on: as many sums at once as it takes to keep up with memory.
template <typename W>
void MultiplyRow(const float* HWY_RESTRICT x, const PackedMatrix& w, int64_t first, int64_t end, float* out) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(D()));
  const auto column = [&](int64_t c) HWY_ATTR { return ColumnAt<W>(w, 0, first + c * lanes, end); };
  const Column<W> c0 = column(0), c1 = column(1), c2 = column(2), c3 = column(3);
  const Column<W> c4 = column(4), c5 = column(5), c6 = column(6), c7 = column(7);
  V s0 = hn::Zero(D()), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
  for (int64_t i = 0; i < w.inputs(); ++i) {
    const V xs = hn::Set(D(), x[i]);
    s0 = hn::MulAdd(xs, LoadWeights(c0.weights + i * kPanel), s0);
    s1 = hn::MulAdd(xs, LoadWeights(c1.weights + i * kPanel), s1);
    s2 = hn::MulAdd(xs, LoadWeights(c2.weights + i * kPanel), s2);
    s3 = hn::MulAdd(xs, LoadWeights(c3.weights + i * kPanel), s3);
    s4 = hn::MulAdd(xs, LoadWeights(c4.weights + i * kPanel), s4);
    s5 = hn::MulAdd(xs, LoadWeights(c5.weights + i * kPanel), s5);
    s6 = hn::MulAdd(xs, LoadWeights(c6.weights + i * kPanel), s6);
    s7 = hn::MulAdd(xs, LoadWeights(c7.weights + i * kPanel), s7);
  }
  StoreFirst(s0, D(), out + c0.first, c0.count);
  StoreFirst(s1, D(), out + c1.first, c1.count);
  StoreFirst(s2, D(), out + c2.first, c2.count);
  StoreFirst(s3, D(), out + c3.first, c3.count);
  StoreFirst(s4, D(), out + c4.first, c4.count);
  StoreFirst(s5, D(), out + c5.first, c5.count);
  StoreFirst(s6, D(), out + c6.first, c6.count);
  StoreFirst(s7, D(), out + c7.first, c7.count);
}

// out[:, first..end) for the outputs from `first`, a panel's first, to `end`.
template <typename W>
void MultiplyRange(MatrixView<const float> x, const PackedMatrix& w, int64_t first, int64_t end,
                   MatrixView<float> out) {
  using Tile = void (*)(MatrixView<const float>, Column<W>, Column<W>, int64_t, bool, MatrixView<float>);
  constexpr Tile kTiles[kTileRows] = {MultiplyTile<1, W>, MultiplyTile<2, W>, MultiplyTile<3, W>,
                                      MultiplyTile<4, W>, MultiplyTile<5, W>, MultiplyTile<6, W>};
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(D()));
  if (x.rows == 1) {
    for (int64_t o = first; o < end; o += 8 * lanes) MultiplyRow<W>(x.data, w, o, end, out.data);
    return;
  }
  const int64_t tiles = hwy::DivCeil(x.rows, kTileRows);
  const int64_t tile_rows = hwy::DivCeil(x.rows, tiles);  // 8 rows are 4 and 4, not 6 and 2
  const int64_t block = x.rows <= kTileRows ? w.inputs() : kInputBlock;
  int64_t begin = 0;
  do {
    const int64_t count = std::min(block, w.inputs() - begin);
    for (int64_t o = first; o < end; o += 2 * lanes) {
      const Column<W> c0 = ColumnAt<W>(w, begin, o, end);
      const Column<W> c1 = ColumnAt<W>(w, begin, o + lanes, end);
      for (int64_t r = 0; r < x.rows; r += tile_rows) {
        const int64_t rows = std::min(tile_rows, x.rows - r);
        kTiles[rows - 1](x.Rows(r, rows).Cols(begin, count), c0, c1, count, begin != 0, out.Rows(r, rows));
      }
    }
    begin += count;
  } while (begin < w.inputs());
}

void MultiplyOutputs(MatrixView<const float> x, const PackedMatrix& w, int64_t first, int64_t end,
                     MatrixView<float> out) {
  if (w.storage() == DType::kBF16) {
    MultiplyRange<hwy::bfloat16_t>(x, w, first, end, out);
  } else {
    MultiplyRange<float>(x, w, first, end, out);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvm {
namespace {

HWY_EXPORT(MultiplyOutputs);

// Products smaller than this are done before another thread has begun.
constexpr int64_t kMulAddsWorthSharing = 1 << 15;

// What is given to one thread at a time. A block of x stays in the second-level cache while it is used for all panels.
struct Grain {
  int64_t rows = 192;
  int64_t panels = 8;
};

// Halved until there is enough to share out evenly.
Grain ChooseGrain(int64_t rows, int64_t panels, int num_threads) {
  Grain grain;
  const auto too_few = [&] {
    return hwy::DivCeil(rows, grain.rows) * hwy::DivCeil(panels, grain.panels) < int64_t{4} * num_threads;
  };
  while (num_threads > 1 && too_few() && grain.panels > 2) grain.panels /= 2;
  while (num_threads > 1 && too_few() && grain.rows > 24) grain.rows /= 2;
  return grain;
}

}  // namespace

PackedMatrix PackedMatrix::Pack(const TensorView& weight, DType storage) {
  assert(weight.shape.size() == 2);
  assert(storage == DType::kF32 || storage == DType::kBF16);
  const int64_t outputs = weight.shape[0], inputs = weight.shape[1];
  PackedMatrix packed;
  packed.view_ = {storage, outputs, inputs, nullptr};
  const int64_t panels = packed.view_.num_panels();
  packed.owned_ = Tensor(storage, {panels, inputs, kPanel});
  packed.view_.data = packed.owned_.bytes();
  for (int64_t p = 0; p < panels; ++p) {
    const int64_t rows = std::min(kPanel, outputs - p * kPanel);
    const auto* data = static_cast<const unsigned char*>(weight.data);
    const std::vector<float> values =
        ReadFloats({weight.dtype, {rows, inputs}, data + p * kPanel * inputs * SizeOf(weight.dtype)});
    const int64_t first = p * inputs * kPanel;
    for (int64_t i = 0; i < inputs; ++i) {
      for (int64_t r = 0; r < rows; ++r) {
        const float value = values[r * inputs + i];
        const int64_t at = first + i * kPanel + r;
        if (storage == DType::kBF16) {
          static_cast<BFloat16*>(packed.owned_.bytes())[at] = ToBFloat16(value);
        } else {
          static_cast<float*>(packed.owned_.bytes())[at] = value;
        }
      }
    }
  }
  return packed;
}

PackedMatrix PackedMatrix::Borrow(const PanelsView& panels) {
  assert(panels.storage == DType::kF32 || panels.storage == DType::kBF16);
  PackedMatrix packed;
  packed.view_ = panels;
  return packed;
}

const void* PackedMatrix::panel(int64_t p) const {
  return static_cast<const unsigned char*>(view_.data) + p * inputs() * kPanel * SizeOf(storage());
}

void MatMul(MatrixView<const float> x, const PackedMatrix& w, MatrixView<float> out, ThreadPool& pool) {
  assert(x.cols == w.inputs() && out.cols == w.outputs() && x.rows == out.rows);
  if (x.rows == 0 || w.outputs() == 0) return;
  const auto multiply = HWY_DYNAMIC_DISPATCH(MultiplyOutputs);
  if (x.rows * w.inputs() * w.outputs() < kMulAddsWorthSharing) {
    multiply(x, w, 0, w.outputs(), out);
    return;
  }
  const int64_t panels = hwy::DivCeil(w.outputs(), PackedMatrix::kPanel);
  const Grain grain = ChooseGrain(x.rows, panels, pool.num_threads());
  const int64_t row_grains = hwy::DivCeil(x.rows, grain.rows);
  // Rows vary slowest, so that a thread meets the same block of x again.
  pool.ParallelFor(row_grains * hwy::DivCeil(panels, grain.panels), [&](int64_t item) {
    const int64_t panel_grains = hwy::DivCeil(panels, grain.panels);
    const int64_t row = item / panel_grains * grain.rows;
    const int64_t rows = std::min(grain.rows, x.rows - row);
    const int64_t first = item % panel_grains * grain.panels * PackedMatrix::kPanel;
    const int64_t end = std::min(first + grain.panels * PackedMatrix::kPanel, w.outputs());
    multiply(x.Rows(row, rows), w, first, end, out.Rows(row, rows));
  });
}

}  // namespace kvm
#endif  // HWY_ONCE
