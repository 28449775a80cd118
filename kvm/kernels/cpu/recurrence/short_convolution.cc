#include "kvm/kernels/cpu/recurrence/short_convolution.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kvm/base/check.h"
#include "kvm/kernels/check_view.h"

// Highway includes this very file once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvm/kernels/cpu/recurrence/short_convolution.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/highway.h"
#include "kvm/kernels/cpu/vectors/float_vectors-inl.h"
#include "kvm/kernels/cpu/vectors/partial_vector-inl.h"
#include "kvm/kernels/cpu/vectors/sigmoid-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvm {
namespace HWY_NAMESPACE {
namespace {

void ShortConvolutionImpl(MatrixView<const float> u, int64_t begin, int64_t count, MatrixView<const float> history,
                          const ConvolutionTaps& taps, MatrixView<float> out) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t size = taps.taps.rows;
  const float* const bias = taps.bias.empty() ? nullptr : taps.bias.data();
  for (int64_t r = 0; r < count; ++r) {
    const int64_t first = begin + r - (size - 1);  // the row that tap 0 multiplies; negative ones lie in the history
    for (int64_t c = 0; c < u.cols; c += lanes) {
      const size_t present = static_cast<size_t>(std::min(lanes, u.cols - c));
      auto sum = bias == nullptr ? hn::Zero(d) : LoadFirst(d, bias + c, present);
      for (int64_t j = 0; j < size; ++j) {
        const int64_t row = first + j;
        const float* const x = row < 0 ? history.row(size - 1 + row) : u.row(row);
        sum = hn::MulAdd(LoadFirst(d, taps.taps.row(j) + c, present), LoadFirst(d, x + c, present), sum);
      }
      StoreFirst(SiluOf(sum), d, out.row(r) + c, present);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvm {

HWY_EXPORT(ShortConvolutionImpl);

void ShortConvolution(MatrixView<const float> u, int64_t begin, int64_t count, MatrixView<const float> history,
                      const ConvolutionTaps& taps, MatrixView<float> out) {
  CheckView(u, "u");
  CheckBetween(begin, 0, u.rows, "begin");
  CheckBetween(count, 0, u.rows - begin, "count");
  CheckAtLeast(taps.taps.rows, 1, "taps.taps.rows");
  CheckView(taps.taps, taps.taps.rows, u.cols, "taps.taps");
  if (!taps.bias.empty()) CheckEq(taps.bias.size(), u.cols, "taps.bias.size()");
  CheckEq(history.rows, taps.taps.rows - 1, "history.rows");
  if (history.rows > 0) CheckView(history, history.rows, u.cols, "history");
  CheckView(out, count, u.cols, "out");
  CheckApart(out, u, "out to share no memory with u");
  CheckApart(out, history, "out to share no memory with history");
  HWY_DYNAMIC_DISPATCH(ShortConvolutionImpl)(u, begin, count, history, taps, out);
}

void AdvanceHistory(MatrixView<const float> u, MatrixView<float> history) {
  CheckView(u, "u");
  if (history.rows > 0) CheckView(history, history.rows, u.cols, "history");
  CheckApart(history, u, "history to share no memory with u");
  for (int64_t r = 0; r < history.rows; ++r) {
    // In ascending order no row is overwritten before it has moved.
    const int64_t from = u.rows + r;  // in (history, u)
    const float* const row = from < history.rows ? history.row(from) : u.row(from - history.rows);
    if (row != history.row(r)) std::copy_n(row, history.cols, history.row(r));
  }
}

}  // namespace kvm
#endif  // HWY_ONCE
