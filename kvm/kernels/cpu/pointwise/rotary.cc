#include "kvm/kernels/cpu/pointwise/rotary.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kvm/base/check.h"
#include "kvm/kernels/bfloat16.h"
#include "kvm/kernels/check_view.h"

// Highway includes this very file once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvm/kernels/cpu/pointwise/rotary.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/highway.h"
#include "kvm/kernels/cpu/vectors/float_vectors-inl.h"
#include "kvm/kernels/cpu/vectors/partial_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvm {
namespace HWY_NAMESPACE {
namespace {

// Turns Lanes(FloatTag()) pairs.
HWY_INLINE void TurnPairs(FloatVector cos, FloatVector sin, float* pairs) {
  const FloatTag d;
  FloatVector even, odd;
  hn::LoadInterleaved2(d, pairs, even, odd);
  const FloatVector turned_even = hn::MulAdd(cos, even, hn::Mul(sin, odd));
  const FloatVector turned_odd = hn::NegMulAdd(sin, even, hn::Mul(cos, odd));
  hn::StoreInterleaved2(turned_even, turned_odd, d, pairs);
}

void TurnHeads(MatrixView<float> x, int64_t head_dim, MatrixView<const float> cos, MatrixView<const float> sin) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t head = 0; head < x.cols; head += head_dim) {
      for (int64_t p = 0; p < cos.cols; p += lanes) {
        const int64_t count = std::min(lanes, cos.cols - p);
        const FloatVector cos_v = LoadFirst(d, cos.row(r) + p, static_cast<size_t>(count));
        const FloatVector sin_v = LoadFirst(d, sin.row(r) + p, static_cast<size_t>(count));
        float* pairs = x.row(r) + head + 2 * p;
        if (count == lanes) {
          TurnPairs(cos_v, sin_v, pairs);
        } else {
          HWY_ALIGN float copy[2 * hn::MaxLanes(d)] = {};
          std::copy_n(pairs, 2 * count, copy);
          TurnPairs(cos_v, sin_v, copy);
          std::copy_n(copy, 2 * count, pairs);
        }
      }
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvm {

HWY_EXPORT(TurnHeads);

std::vector<float> RotaryFrequencies(int64_t rotary_dim, double theta) {
  CheckAtLeast(rotary_dim, 0, "rotary_dim");
  CheckEq(rotary_dim % 2, 0, "rotary_dim % 2");
  Check(theta > 0, "theta to be positive");
  const int64_t n = rotary_dim / 2;
  std::vector<float> freqs(n, 1.0f);
  if (n < 2) return freqs;
  const float base = static_cast<float>(1.0 / theta);
  const float step = 1.0f / static_cast<float>(n - 1);
  for (int64_t p = 0; p < n; ++p) {
    // Counted from the nearer end, as the models' own tables were.
    const float exponent = p < n / 2 ? step * static_cast<float>(p) : 1.0f - step * static_cast<float>(n - 1 - p);
    freqs[p] = std::pow(base, exponent);
  }
  return freqs;
}

void RotaryTable(absl::Span<const float> freqs, int64_t first_position, DType table, MatrixView<float> cos,
                 MatrixView<float> sin) {
  Check(table == DType::kF32 || table == DType::kBF16, "table to be F32 or BF16");
  CheckView(cos, cos.rows, static_cast<int64_t>(freqs.size()), "cos");
  CheckView(sin, cos.rows, cos.cols, "sin");
  CheckApart(cos, sin, "cos to share no memory with sin");
  const auto rounded = [table](double value) {
    const float f = static_cast<float>(value);
    return table == DType::kBF16 ? ToFloat(ToBFloat16(f)) : f;
  };
  for (int64_t r = 0; r < cos.rows; ++r) {
    const float position = static_cast<float>(first_position + r);
    for (int64_t p = 0; p < cos.cols; ++p) {
      const float angle = position * freqs[p];
      // In double, so that the rounded values are the same with every C library.
      cos.row(r)[p] = rounded(std::cos(double{angle}));
      sin.row(r)[p] = rounded(std::sin(double{angle}));
    }
  }
}

void ApplyRotary(MatrixView<float> x, int64_t head_dim, MatrixView<const float> cos, MatrixView<const float> sin) {
  CheckAtLeast(head_dim, 1, "head_dim");
  CheckView(x, "x");
  CheckEq(x.cols % head_dim, 0, "x.cols % head_dim");
  CheckAtMost(2 * cos.cols, head_dim, "2 * cos.cols");
  CheckView(cos, x.rows, cos.cols, "cos");
  CheckView(sin, x.rows, cos.cols, "sin");
  if (cos.cols == 0) return;
  HWY_DYNAMIC_DISPATCH(TurnHeads)(x, head_dim, cos, sin);
}

}  // namespace kvm
#endif  // HWY_ONCE
