#include "kvm/kernels/cpu/matmul.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kvm/kernels/aligned_buffer.h"
#include "kvm/kernels/bfloat16.h"
#include "kvm/kernels/check_view.h"

// Highway includes this very file once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvm/kernels/cpu/matmul.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kvm/kernels/cpu/vectors/float_vectors-inl.h"
#include "kvm/kernels/cpu/vectors/partial_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvm {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kPanel = PackedMatrix::kPanel;

static_assert(kPanel % hn::MaxLanes(PanelTag()) == 0, "a vector of outputs lies in one panel");

// Rows that one pass over a pair of weight vectors serves: 12 accumulators fit 16 registers and hide the latency of
// multiply-adds.
constexpr int64_t kTileRows = 6;

// Inputs per pass when there are many rows: 6 rows of x and the weights of 16 outputs stay in the first-level cache.
constexpr int64_t kInputBlock = 384;

// Inputs in a row that have one scale: all where weights are floats, which need none.
template <typename W>
constexpr int64_t kRun = std::numeric_limits<int64_t>::max();
template <>
constexpr int64_t kRun<int8_t> = kScaleInputs;

// Elements from one run of a panel to the next.
constexpr int64_t kInt8Scales = kPanel * static_cast<int64_t>(sizeof(float));
constexpr int64_t kInt8Run = kInt8Scales + kScaleInputs * kPanel;

// Tiles of rows from which on int8 weights are converted once for all instead of once a tile.
constexpr int64_t kTilesWorthFloats = 3;

// The weights of Lanes(PanelTag()) neighbouring outputs, and where their sums go.
template <typename W>
struct Column {
  const W* panel;  // from the first input on, at the start of a run
  int64_t lane;    // of the panel
  int64_t first;   // output
  size_t count;    // outputs that exist, the rest of the vector is padding

  // The weights of input `begin`, which a run starts with; the next input's lie kPanel further.
  HWY_INLINE const W* Run(int64_t begin) const {
    if constexpr (std::is_same_v<W, int8_t>) return panel + begin / kScaleInputs * kInt8Run + kInt8Scales + lane;
    return panel + begin * kPanel + lane;
  }
};

// The scales of a run, whatever they are where it has none.
template <typename W>
HWY_INLINE PanelVector Scales(Column<W> c, int64_t begin) {
  if constexpr (std::is_same_v<W, int8_t>) {
    return hn::LoadU(PanelTag(), reinterpret_cast<const float*>(c.panel + begin / kScaleInputs * kInt8Run) + c.lane);
  }
  return hn::Zero(PanelTag());
}

// The product with a scale is rounded before it is multiplied with anything else: it is that of some float32 weights.
template <typename W>
HWY_INLINE PanelVector LoadWeights(const W* w, PanelVector scales) {
  const PanelVector numbers = LoadFloats(PanelTag(), w);
  if constexpr (std::is_same_v<W, int8_t>) return hn::Mul(numbers, scales);
  return numbers;
}

// The column that starts at output `first`; one past `end` gets some other's weights and has no outputs. A run starts
// at `first_input`.
template <typename W>
HWY_INLINE Column<W> ColumnAt(const PackedMatrix& w, int64_t first_input, int64_t first, int64_t end) {
  const int64_t lanes = PanelLanes();
  const int64_t count = std::clamp<int64_t>(std::min(end, w.outputs()) - first, 0, lanes);
  if (count == 0) first = 0;
  const PanelsView& view = w.view();
  const W* panel =
      static_cast<const W*>(view.data) + first / kPanel * (view.panel_byte_size() / static_cast<int64_t>(sizeof(W)));
  panel += std::is_same_v<W, int8_t> ? first_input / kScaleInputs * kInt8Run : first_input * kPanel;
  return {panel, first % kPanel, first, static_cast<size_t>(count)};
}

template <typename W>
HWY_INLINE void LoadRow(Column<W> c0, Column<W> c1, const float* row, PanelVector& sum0, PanelVector& sum1) {
  sum0 = LoadFirst(PanelTag(), row + c0.first, c0.count);
  sum1 = LoadFirst(PanelTag(), row + c1.first, c1.count);
}

template <typename W>
HWY_INLINE void StoreRow(PanelVector sum0, PanelVector sum1, Column<W> c0, Column<W> c1, float* row) {
  StoreFirst(sum0, PanelTag(), row + c0.first, c0.count);
  StoreFirst(sum1, PanelTag(), row + c1.first, c1.count);
}

HWY_INLINE void MulAddRow(float x, PanelVector w0, PanelVector w1, PanelVector& sum0, PanelVector& sum1) {
  const PanelVector xs = hn::Set(PanelTag(), x);
  sum0 = hn::MulAdd(xs, w0, sum0);
  sum1 = hn::MulAdd(xs, w1, sum1);
}

// Sums of kRows rows of x over `inputs` inputs in two columns. `resume` continues the sums that are in `out`.
template <int kRows, typename W>
void MultiplyTile(MatrixView<const float> x, Column<W> c0, Column<W> c1, int64_t inputs, bool resume,
                  MatrixView<float> out) {
  // Vectors cannot be array elements for every instruction set.
  PanelVector a0 = hn::Zero(PanelTag()), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0;
  PanelVector b0 = a0, b1 = a0, b2 = a0, b3 = a0, b4 = a0, b5 = a0;
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
  for (int64_t begin = 0, count; begin < inputs; begin += count) {
    count = std::min(kRun<W>, inputs - begin);
    const PanelVector scales0 = Scales(c0, begin), scales1 = Scales(c1, begin);
    const W* HWY_RESTRICT weights0 = c0.Run(begin);
    const W* HWY_RESTRICT weights1 = c1.Run(begin);
#pragma GCC unroll 4
    for (int64_t i = 0; i < count; ++i) {
      const PanelVector w0 = LoadWeights(weights0 + i * kPanel, scales0);
      const PanelVector w1 = LoadWeights(weights1 + i * kPanel, scales1);
      MulAddRow(x0[begin + i], w0, w1, a0, b0);
      if constexpr (kRows > 1) MulAddRow(x1[begin + i], w0, w1, a1, b1);
      if constexpr (kRows > 2) MulAddRow(x2[begin + i], w0, w1, a2, b2);
      if constexpr (kRows > 3) MulAddRow(x3[begin + i], w0, w1, a3, b3);
      if constexpr (kRows > 4) MulAddRow(x4[begin + i], w0, w1, a4, b4);
      if constexpr (kRows > 5) MulAddRow(x5[begin + i], w0, w1, a5, b5);
    }
  }
  StoreRow(a0, b0, c0, c1, out.row(0));
  if constexpr (kRows > 1) StoreRow(a1, b1, c0, c1, out.row(1));
  if constexpr (kRows > 2) StoreRow(a2, b2, c0, c1, out.row(2));
  if constexpr (kRows > 3) StoreRow(a3, b3, c0, c1, out.row(3));
  if constexpr (kRows > 4) StoreRow(a4, b4, c0, c1, out.row(4));
  if constexpr (kRows > 5) StoreRow(a5, b5, c0, c1, out.row(5));
}

// Columns that one row is multiplied with at once, of four panels where vectors are half a panel wide or more: each
// panel is read in order, and processors follow few such streams by themselves.
constexpr int64_t kRowColumns = hn::MaxLanes(PanelTag()) == kPanel ? 4 : 8;

// How far ahead the weights of each panel are asked for, in bytes. Half of it reads a tenth less with bfloat16 and a
// fifth less with int8, of which a line takes four times the arithmetic of one of floats.
constexpr int64_t kAheadBytes = 2560;

// A cache line holds a panel's weights of so many inputs.
template <typename W>
constexpr int64_t kLineInputs = kCacheLineBytes / (kPanel * static_cast<int64_t>(sizeof(W)));

// One row times kRowColumns columns. They are those of the panel at output `first` and of others, each `stride` outputs
// further.
template <typename W>
void MultiplyRow(const float* HWY_RESTRICT x, const PackedMatrix& w, int64_t first, int64_t stride, int64_t end,
                 float* out) {
  constexpr int64_t kAhead = kAheadBytes / static_cast<int64_t>(sizeof(W));
  const int64_t lanes = PanelLanes();
  const int64_t panel_columns = kPanel / lanes;
  const auto column = [&](int64_t c) HWY_ATTR {
    return ColumnAt<W>(w, 0, first + c / panel_columns * stride + c % panel_columns * lanes, end);
  };
  const Column<W> c0 = column(0), c1 = column(1), c2 = column(2), c3 = column(3);
  const Column<W> c4 = column(4), c5 = column(5), c6 = column(6), c7 = column(7);
  PanelVector s0 = hn::Zero(PanelTag()), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
  for (int64_t begin = 0, count; begin < w.inputs(); begin += count) {
    count = std::min(kRun<W>, w.inputs() - begin);
    const PanelVector f0 = Scales(c0, begin);
    const PanelVector f1 = Scales(c1, begin);
    const PanelVector f2 = Scales(c2, begin);
    const PanelVector f3 = Scales(c3, begin);
    const PanelVector f4 = Scales(c4, begin);
    const PanelVector f5 = Scales(c5, begin);
    const PanelVector f6 = Scales(c6, begin);
    const PanelVector f7 = Scales(c7, begin);
    const W* HWY_RESTRICT p0 = c0.Run(begin);
    const W* HWY_RESTRICT p1 = c1.Run(begin);
    const W* HWY_RESTRICT p2 = c2.Run(begin);
    const W* HWY_RESTRICT p3 = c3.Run(begin);
    const W* HWY_RESTRICT p4 = c4.Run(begin);
    const W* HWY_RESTRICT p5 = c5.Run(begin);
    const W* HWY_RESTRICT p6 = c6.Run(begin);
    const W* HWY_RESTRICT p7 = c7.Run(begin);
    for (int64_t i = 0; i < count; ++i) {
      if (i % kLineInputs<W> == 0) {
        hwy::Prefetch(p0 + i * kPanel + kAhead);
        hwy::Prefetch(p1 + i * kPanel + kAhead);
        hwy::Prefetch(p2 + i * kPanel + kAhead);
        hwy::Prefetch(p3 + i * kPanel + kAhead);
      }
      if (kRowColumns > 4 && i % kLineInputs<W> == 0) {
        hwy::Prefetch(p4 + i * kPanel + kAhead);
        hwy::Prefetch(p5 + i * kPanel + kAhead);
        hwy::Prefetch(p6 + i * kPanel + kAhead);
        hwy::Prefetch(p7 + i * kPanel + kAhead);
      }
      const PanelVector xs = hn::Set(PanelTag(), x[begin + i]);
      s0 = hn::MulAdd(xs, LoadWeights(p0 + i * kPanel, f0), s0);
      s1 = hn::MulAdd(xs, LoadWeights(p1 + i * kPanel, f1), s1);
      s2 = hn::MulAdd(xs, LoadWeights(p2 + i * kPanel, f2), s2);
      s3 = hn::MulAdd(xs, LoadWeights(p3 + i * kPanel, f3), s3);
      if constexpr (kRowColumns > 4) {
        s4 = hn::MulAdd(xs, LoadWeights(p4 + i * kPanel, f4), s4);
        s5 = hn::MulAdd(xs, LoadWeights(p5 + i * kPanel, f5), s5);
        s6 = hn::MulAdd(xs, LoadWeights(p6 + i * kPanel, f6), s6);
        s7 = hn::MulAdd(xs, LoadWeights(p7 + i * kPanel, f7), s7);
      }
    }
  }
  StoreFirst(s0, PanelTag(), out + c0.first, c0.count);
  StoreFirst(s1, PanelTag(), out + c1.first, c1.count);
  StoreFirst(s2, PanelTag(), out + c2.first, c2.count);
  StoreFirst(s3, PanelTag(), out + c3.first, c3.count);
  if constexpr (kRowColumns > 4) {
    StoreFirst(s4, PanelTag(), out + c4.first, c4.count);
    StoreFirst(s5, PanelTag(), out + c5.first, c5.count);
    StoreFirst(s6, PanelTag(), out + c6.first, c6.count);
    StoreFirst(s7, PanelTag(), out + c7.first, c7.count);
  }
}

// All rows of x times two columns, at most `tile_rows` at a time.
template <typename W>
void MultiplyTiles(MatrixView<const float> x, Column<W> c0, Column<W> c1, int64_t tile_rows, bool resume,
                   MatrixView<float> out) {
  using Tile = void (*)(MatrixView<const float>, Column<W>, Column<W>, int64_t, bool, MatrixView<float>);
  constexpr Tile kTiles[kTileRows] = {MultiplyTile<1, W>, MultiplyTile<2, W>, MultiplyTile<3, W>,
                                      MultiplyTile<4, W>, MultiplyTile<5, W>, MultiplyTile<6, W>};
  for (int64_t r = 0; r < x.rows; r += tile_rows) {
    const int64_t rows = std::min(tile_rows, x.rows - r);
    kTiles[rows - 1](x.Rows(r, rows), c0, c1, x.cols, resume, out.Rows(r, rows));
  }
}

// A column of int8 as floats, `count` inputs of it, written to panels of floats from output `output` on.
template <typename W>
Column<float> Floats(Column<W> c, int64_t count, float* HWY_RESTRICT panels, int64_t output) {
  const Column<float> floats = {panels + output / kPanel * kInputBlock * kPanel, output % kPanel, c.first, c.count};
  for (int64_t begin = 0, run; begin < count; begin += run) {
    run = std::min(kRun<W>, count - begin);
    const PanelVector scales = Scales(c, begin);
    const W* HWY_RESTRICT weights = c.Run(begin);
    float* HWY_RESTRICT to = panels + (floats.Run(begin) - panels);
    for (int64_t i = 0; i < run; ++i)
      hn::StoreU(LoadWeights(weights + i * kPanel, scales), PanelTag(), to + i * kPanel);
  }
  return floats;
}

// out[:, first..end) for the outputs from `first`, a panel's first, to `end`.
template <typename W>
void MultiplyRange(MatrixView<const float> x, const PackedMatrix& w, int64_t first, int64_t end,
                   MatrixView<float> out) {
  const int64_t lanes = PanelLanes();
  if (x.rows == 1) {
    const int64_t columns = kRowColumns * lanes;
    // Panels in so many streams, each of which goes through memory in order.
    const int64_t streams = std::max<int64_t>(1, columns / kPanel);
    const int64_t stride = hwy::DivCeil(hwy::DivCeil(end - first, kPanel), streams) * kPanel;
    for (int64_t o = first; o < first + stride; o += std::min(columns, kPanel)) {
      MultiplyRow<W>(x.data, w, o, stride, end, out.data);
    }
    return;
  }
  const int64_t tiles = hwy::DivCeil(x.rows, kTileRows);
  const int64_t tile_rows = hwy::DivCeil(x.rows, tiles);  // 8 rows are 4 and 4, not 6 and 2
  const int64_t block = tiles == 1 ? w.inputs() : kInputBlock;
  int64_t begin = 0;
  do {
    const int64_t count = std::min(block, w.inputs() - begin);
    for (int64_t o = first; o < end; o += 2 * lanes) {
      const Column<W> c0 = ColumnAt<W>(w, begin, o, end);
      const Column<W> c1 = ColumnAt<W>(w, begin, o + lanes, end);
      if (std::is_same_v<W, int8_t> && tiles >= kTilesWorthFloats) {
        HWY_ALIGN float weights[2 * kInputBlock * kPanel];
        const Column<float> f0 = Floats(c0, count, weights, 0);
        const Column<float> f1 = Floats(c1, count, weights, lanes);
        MultiplyTiles(x.Cols(begin, count), f0, f1, tile_rows, begin != 0, out);
      } else {
        MultiplyTiles(x.Cols(begin, count), c0, c1, tile_rows, begin != 0, out);
      }
    }
    begin += count;
  } while (begin < w.inputs());
}

void MultiplyOutputs(MatrixView<const float> x, const PackedMatrix& w, int64_t first, int64_t end,
                     MatrixView<float> out) {
  if (w.storage() == DType::kI8) {
    MultiplyRange<int8_t>(x, w, first, end, out);
  } else if (w.storage() == DType::kBF16) {
    MultiplyRange<BFloat16>(x, w, first, end, out);
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
  if (rows == 1) {
    // In runs as long as can be: panels are read in order.
    grain.panels = num_threads == 1 ? panels : std::max<int64_t>(8, panels / (4 * num_threads));
    return grain;
  }
  const auto too_few = [&] {
    return hwy::DivCeil(rows, grain.rows) * hwy::DivCeil(panels, grain.panels) < int64_t{4} * num_threads;
  };
  while (num_threads > 1 && too_few() && grain.panels > 2) grain.panels /= 2;
  while (num_threads > 1 && too_few() && grain.rows > 24) grain.rows /= 2;
  return grain;
}

}  // namespace

void MatMul(MatrixView<const float> x, const PackedMatrix& w, MatrixView<float> out, ThreadPool& pool) {
  CheckView(x, x.rows, w.inputs(), "x");
  CheckView(out, x.rows, w.outputs(), "out");
  CheckApart(out, x, "out to share no memory with x");
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
