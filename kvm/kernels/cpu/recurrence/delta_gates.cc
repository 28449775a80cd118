#include "kvm/kernels/cpu/recurrence/delta_gates.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kvm/base/check.h"
#include "kvm/kernels/check_view.h"

// Highway includes this very file once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvm/kernels/cpu/recurrence/delta_gates.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kvm/kernels/cpu/vectors/float_vectors-inl.h"
#include "kvm/kernels/cpu/vectors/keep_nan-inl.h"
#include "kvm/kernels/cpu/vectors/partial_vector-inl.h"
#include "kvm/kernels/cpu/vectors/sigmoid-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvm {
namespace HWY_NAMESPACE {
namespace {

// log(1 + exp(x)).
HWY_INLINE FloatVector SoftplusOf(FloatVector x) {
  const FloatTag d;
  const FloatVector small = hn::Log1p(d, hn::Exp(d, hn::Neg(hn::Abs(x))));
  return KeepNan(x, hn::Add(hn::Max(x, hn::Zero(d)), small));
}

// exp(x) for x <= 0. Far below, exp is 0, and −200 stands for everything there, −∞ included.
HWY_INLINE FloatVector ExpOfNegative(FloatVector x) {
  const FloatTag d;
  return KeepNan(x, hn::Exp(d, hn::Max(x, hn::Set(d, -200.0f))));
}

// Σx² over n elements.
HWY_INLINE float SquaresOf(const float* HWY_RESTRICT x, int64_t n) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVector sum = hn::Zero(d);
  for (int64_t i = 0; i < n; i += lanes) {
    const FloatVector part = LoadFirst(d, x + i, static_cast<size_t>(std::min(lanes, n - i)));
    sum = hn::MulAdd(part, part, sum);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

void DeltaUnitLengthImpl(MatrixView<float> x, int64_t head_dim, float scale) {
  constexpr float kEpsilon = 1e-6f;
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < x.rows; ++r) {
    for (float* head = x.row(r); head < x.row(r) + x.cols; head += head_dim) {
      const FloatVector factor = hn::Set(d, scale / std::sqrt(SquaresOf(head, head_dim) + kEpsilon));
      for (int64_t i = 0; i < head_dim; i += lanes) {
        const size_t count = static_cast<size_t>(std::min(lanes, head_dim - i));
        StoreFirst(hn::Mul(LoadFirst(d, head + i, count), factor), d, head + i, count);
      }
    }
  }
}

void ScaledSigmoidImpl(MatrixView<float> y, float scale) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < y.rows; ++r) {
    for (int64_t i = 0; i < y.cols; i += lanes) {
      const size_t count = static_cast<size_t>(std::min(lanes, y.cols - i));
      float* const at = y.row(r) + i;
      StoreFirst(hn::Mul(hn::Set(d, scale), SigmoidOf(LoadFirst(d, at, count))), d, at, count);
    }
  }
}

// y = decay(y + bias, rate).
template <class Decay>
HWY_INLINE void ForEachDecay(MatrixView<float> y, const float* rate, const float* bias, Decay decay) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const FloatVector largest = hn::Set(d, 3e38f);
  for (int64_t r = 0; r < y.rows; ++r) {
    for (int64_t i = 0; i < y.cols; i += lanes) {
      const size_t count = static_cast<size_t>(std::min(lanes, y.cols - i));
      float* const at = y.row(r) + i;
      const FloatVector x = hn::Add(LoadFirst(d, at, count), LoadFirst(d, bias + i, count));
      // Finite, as infinity times 0 would be no number.
      const FloatVector given = LoadFirst(d, rate + i, count);
      const FloatVector rates = KeepNan(given, hn::Min(given, largest));
      StoreFirst(decay(x, rates), d, at, count);
    }
  }
}

void SoftplusDecayImpl(MatrixView<float> y, const float* rate, const float* bias) {
  ForEachDecay(y, rate, bias, [](FloatVector x, FloatVector rates) HWY_ATTR {
    return ExpOfNegative(hn::Neg(hn::Mul(rates, SoftplusOf(x))));
  });
}

void BoundedDecayImpl(MatrixView<float> y, const float* rate, const float* bias, float lower_bound) {
  ForEachDecay(y, rate, bias, [lower_bound](FloatVector x, FloatVector rates) HWY_ATTR {
    return ExpOfNegative(hn::Mul(hn::Set(FloatTag(), lower_bound), SigmoidOf(hn::Mul(rates, x))));
  });
}

void GatedRmsNormImpl(MatrixView<float> x, const float* weight, int64_t head_dim, float epsilon,
                      MatrixView<const float> gate) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t begin = 0; begin < x.cols; begin += head_dim) {
      float* const head = x.row(r) + begin;
      const float mean = SquaresOf(head, head_dim) / static_cast<float>(head_dim);
      const FloatVector factor = hn::Set(d, 1.0f / std::sqrt(mean + epsilon));
      for (int64_t i = 0; i < head_dim; i += lanes) {
        const size_t count = static_cast<size_t>(std::min(lanes, head_dim - i));
        FloatVector out = hn::Mul(hn::Mul(LoadFirst(d, head + i, count), factor), LoadFirst(d, weight + i, count));
        if (gate.data != nullptr) out = hn::Mul(out, LoadFirst(d, gate.row(r) + begin + i, count));
        StoreFirst(out, d, head + i, count);
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

HWY_EXPORT(DeltaUnitLengthImpl);
HWY_EXPORT(ScaledSigmoidImpl);
HWY_EXPORT(SoftplusDecayImpl);
HWY_EXPORT(BoundedDecayImpl);
HWY_EXPORT(GatedRmsNormImpl);

namespace {

void CheckDecays(MatrixView<float> y, absl::Span<const float> rate, absl::Span<const float> bias, CallSite site) {
  CheckView(y, "y", site);
  CheckEq(rate.size(), y.cols, "rate.size()", site);
  CheckEq(bias.size(), y.cols, "bias.size()", site);
}

}  // namespace

void DeltaUnitLength(MatrixView<float> x, int64_t head_dim, float scale) {
  CheckView(x, "x");
  CheckAtLeast(head_dim, 1, "head_dim");
  CheckEq(x.cols % head_dim, 0, "x.cols % head_dim");
  HWY_DYNAMIC_DISPATCH(DeltaUnitLengthImpl)(x, head_dim, scale);
}

void ScaledSigmoid(MatrixView<float> y, float scale) {
  CheckView(y, "y");
  HWY_DYNAMIC_DISPATCH(ScaledSigmoidImpl)(y, scale);
}

void SoftplusDecay(MatrixView<float> y, absl::Span<const float> rate, absl::Span<const float> bias) {
  CheckDecays(y, rate, bias, CallSite::Here());
  HWY_DYNAMIC_DISPATCH(SoftplusDecayImpl)(y, rate.data(), bias.data());
}

void BoundedDecay(MatrixView<float> y, absl::Span<const float> rate, absl::Span<const float> bias, float lower_bound) {
  CheckDecays(y, rate, bias, CallSite::Here());
  Check(lower_bound < 0, "lower_bound to be negative");
  HWY_DYNAMIC_DISPATCH(BoundedDecayImpl)(y, rate.data(), bias.data(), lower_bound);
}

void GatedRmsNorm(MatrixView<float> x, absl::Span<const float> weight, float epsilon, MatrixView<const float> gate) {
  const int64_t head_dim = static_cast<int64_t>(weight.size());
  CheckView(x, "x");
  CheckAtLeast(head_dim, 1, "weight.size()");
  CheckEq(x.cols % head_dim, 0, "x.cols % weight.size()");
  if (gate.data != nullptr) CheckView(gate, x.rows, x.cols, "gate");
  HWY_DYNAMIC_DISPATCH(GatedRmsNormImpl)(x, weight.data(), head_dim, epsilon, gate);
}

}  // namespace kvm
#endif  // HWY_ONCE
