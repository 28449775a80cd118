#include "kvm/kernels/cpu/pointwise/token_shift.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kvm/base/check.h"
#include "kvm/kernels/check_view.h"

// Highway includes this very file once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvm/kernels/cpu/pointwise/token_shift.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/highway.h"
#include "kvm/kernels/cpu/vectors/float_vectors-inl.h"
#include "kvm/kernels/cpu/vectors/partial_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvm {
namespace HWY_NAMESPACE {
namespace {

void Shift(MatrixView<const float> x, const float* previous, const float* mix, MatrixView<float> out) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  // Backwards, so that a row's predecessor is still there when out is x.
  for (int64_t r = x.rows - 1; r >= 0; --r) {
    const float* now = x.row(r);
    const float* before = r == 0 ? previous : x.row(r - 1);
    float* to = out.row(r);
    for (int64_t i = 0; i < x.cols; i += lanes) {
      const size_t count = static_cast<size_t>(std::min(lanes, x.cols - i));
      const auto now_v = LoadFirst(d, now + i, count);
      const auto change = hn::Sub(LoadFirst(d, before + i, count), now_v);
      StoreFirst(hn::MulAdd(LoadFirst(d, mix + i, count), change, now_v), d, to + i, count);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvm {

HWY_EXPORT(Shift);

void TokenShift(MatrixView<const float> x, absl::Span<const float> previous, absl::Span<const float> mix,
                MatrixView<float> out) {
  CheckView(x, "x");
  CheckEq(previous.size(), x.cols, "previous.size()");
  CheckEq(mix.size(), x.cols, "mix.size()");
  CheckView(out, x.rows, x.cols, "out");
  CheckSameOrApart(out, x, "out to be x or apart from it");
  CheckApart(out, MatrixView<const float>(previous.data(), 1, x.cols), "previous not to lie in out");
  HWY_DYNAMIC_DISPATCH(Shift)(x, previous.data(), mix.data(), out);
}

}  // namespace kvm
#endif  // HWY_ONCE
