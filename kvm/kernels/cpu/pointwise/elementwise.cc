#include "kvm/kernels/cpu/pointwise/elementwise.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kvm/base/check.h"
#include "kvm/kernels/check_view.h"

// Highway includes this very file once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvm/kernels/cpu/pointwise/elementwise.cc"
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

HWY_INLINE FloatVector Constant(float value) { return hn::Set(FloatTag(), value); }

// What operations read beside y: a matrix of the same shape, or one row that goes for all.
HWY_INLINE const float* RowOf(const MatrixView<const float>& matrix, int64_t r) { return matrix.row(r); }
HWY_INLINE const float* RowOf(const absl::Span<const float>& row, int64_t) { return row.data(); }

// y = op(y, inputs...). The end of a row goes through the same vector instructions as the rest.
template <class Op, class... Inputs>
HWY_INLINE void ForEachVector(MatrixView<float> y, Op op, const Inputs&... inputs) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const size_t cols = static_cast<size_t>(y.cols);
  for (int64_t r = 0; r < y.rows; ++r) {
    float* row = y.row(r);
    for (size_t i = 0; i < cols; i += lanes) {
      const size_t count = std::min(lanes, cols - i);
      StoreFirst(op(LoadFirst(d, row + i, count), LoadFirst(d, RowOf(inputs, r) + i, count)...), d, row + i, count);
    }
  }
}

void AddScaledImpl(MatrixView<float> y, float scale, MatrixView<const float> x) {
  ForEachVector(
      y, [scale](FloatVector yv, FloatVector xv) HWY_ATTR { return hn::MulAdd(Constant(scale), xv, yv); }, x);
}

void BlendImpl(MatrixView<float> y, float a, float b, MatrixView<const float> x) {
  ForEachVector(
      y,
      [a, b](FloatVector yv, FloatVector xv) HWY_ATTR { return hn::MulAdd(Constant(a), yv, hn::Mul(Constant(b), xv)); },
      x);
}

void MultiplyImpl(MatrixView<float> y, MatrixView<const float> x) {
  ForEachVector(
      y, [](FloatVector yv, FloatVector xv) HWY_ATTR { return hn::Mul(yv, xv); }, x);
}

void ReluSquaredImpl(MatrixView<float> y) {
  ForEachVector(y, [](FloatVector yv) HWY_ATTR {
    const FloatVector positive = KeepNan(yv, hn::Max(yv, hn::Zero(FloatTag())));
    return hn::Mul(positive, positive);
  });
}

void TanhImpl(MatrixView<float> y) {
  ForEachVector(y, [](FloatVector yv) HWY_ATTR { return hn::Tanh(FloatTag(), yv); });
}

void SigmoidImpl(MatrixView<float> y) {
  ForEachVector(y, [](FloatVector yv) HWY_ATTR { return SigmoidOf(yv); });
}

void SiluImpl(MatrixView<float> y) {
  ForEachVector(y, [](FloatVector yv) HWY_ATTR { return SiluOf(yv); });
}

void BiasedSigmoidImpl(MatrixView<float> y, absl::Span<const float> bias) {
  ForEachVector(
      y, [](FloatVector yv, FloatVector bias_v) HWY_ATTR { return SigmoidOf(hn::Add(bias_v, yv)); }, bias);
}

void SigmoidBlendImpl(MatrixView<float> y, MatrixView<const float> target, absl::Span<const float> bias,
                      MatrixView<const float> gate) {
  ForEachVector(
      y,
      [](FloatVector yv, FloatVector target_v, FloatVector bias_v, FloatVector gate_v)
          HWY_ATTR { return hn::MulAdd(hn::Sub(target_v, yv), SigmoidOf(hn::Add(bias_v, gate_v)), yv); },
      target, bias, gate);
}

void OnePlusEluImpl(MatrixView<float> y) {
  ForEachVector(y, [](FloatVector yv) HWY_ATTR {
    const FloatVector zero = hn::Zero(FloatTag());
    const FloatVector exp = hn::Exp(FloatTag(), hn::Min(yv, zero));
    return KeepNan(yv, hn::IfThenElse(hn::Gt(yv, zero), hn::Add(Constant(1.0f), yv), exp));
  });
}

void SoftCapImpl(MatrixView<float> y, float cap) {
  ForEachVector(y, [cap](FloatVector yv) HWY_ATTR {
    const FloatVector cap_v = Constant(cap);
    return hn::Mul(cap_v, hn::Tanh(FloatTag(), hn::Div(yv, cap_v)));
  });
}

void SoftmaxWeightsImpl(MatrixView<float> y, float largest, float temperature) {
  ForEachVector(y, [largest, temperature](FloatVector yv) HWY_ATTR {
    const FloatVector largest_v = Constant(largest);
    const FloatVector weight = hn::Exp(FloatTag(), hn::Div(hn::Sub(yv, largest_v), Constant(temperature)));
    return KeepNan(yv, hn::IfThenElse(hn::Lt(yv, largest_v), weight, Constant(1.0f)));
  });
}

// exp(−softplus(−z) − 0.5) = σ(z)·exp(−0.5), which needs no logarithm.
void Rwkv7DecayImpl(MatrixView<float> y, absl::Span<const float> bias) {
  constexpr float kExpMinusHalf = 0.60653065971263342f;
  ForEachVector(
      y,
      [](FloatVector yv, FloatVector bias_v) HWY_ATTR {
        const FloatVector z = hn::Add(bias_v, yv);
        return KeepNan(z, hn::Exp(FloatTag(), hn::Mul(Constant(-kExpMinusHalf), SigmoidOf(z))));
      },
      bias);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvm {
namespace {

HWY_EXPORT(AddScaledImpl);
HWY_EXPORT(BlendImpl);
HWY_EXPORT(MultiplyImpl);
HWY_EXPORT(ReluSquaredImpl);
HWY_EXPORT(TanhImpl);
HWY_EXPORT(SigmoidImpl);
HWY_EXPORT(SiluImpl);
HWY_EXPORT(BiasedSigmoidImpl);
HWY_EXPORT(SigmoidBlendImpl);
HWY_EXPORT(OnePlusEluImpl);
HWY_EXPORT(SoftCapImpl);
HWY_EXPORT(SoftmaxWeightsImpl);
HWY_EXPORT(Rwkv7DecayImpl);

void CheckInput(MatrixView<float> y, MatrixView<const float> x, const char* name, CallSite site) {
  CheckView(x, y.rows, y.cols, name, site);
  CheckSameOrApart(y, x, "y to be the other matrix or apart from it", site);
}

void CheckInput(MatrixView<float> y, absl::Span<const float> row, CallSite site) {
  CheckEq(row.size(), y.cols, "bias.size()", site);
}

}  // namespace

void AddScaled(MatrixView<float> y, float scale, MatrixView<const float> x) {
  CheckView(y, "y");
  CheckInput(y, x, "x", CallSite::Here());
  HWY_DYNAMIC_DISPATCH(AddScaledImpl)(y, scale, x);
}

void Blend(MatrixView<float> y, float a, float b, MatrixView<const float> x) {
  CheckView(y, "y");
  CheckInput(y, x, "x", CallSite::Here());
  HWY_DYNAMIC_DISPATCH(BlendImpl)(y, a, b, x);
}

void Multiply(MatrixView<float> y, MatrixView<const float> x) {
  CheckView(y, "y");
  CheckInput(y, x, "x", CallSite::Here());
  HWY_DYNAMIC_DISPATCH(MultiplyImpl)(y, x);
}

void ReluSquared(MatrixView<float> y) {
  CheckView(y, "y");
  HWY_DYNAMIC_DISPATCH(ReluSquaredImpl)(y);
}

void Tanh(MatrixView<float> y) {
  CheckView(y, "y");
  HWY_DYNAMIC_DISPATCH(TanhImpl)(y);
}

void Sigmoid(MatrixView<float> y) {
  CheckView(y, "y");
  HWY_DYNAMIC_DISPATCH(SigmoidImpl)(y);
}

void Silu(MatrixView<float> y) {
  CheckView(y, "y");
  HWY_DYNAMIC_DISPATCH(SiluImpl)(y);
}

void BiasedSigmoid(MatrixView<float> y, absl::Span<const float> bias) {
  CheckView(y, "y");
  CheckInput(y, bias, CallSite::Here());
  HWY_DYNAMIC_DISPATCH(BiasedSigmoidImpl)(y, bias);
}

void SigmoidBlend(MatrixView<float> y, MatrixView<const float> target, absl::Span<const float> bias,
                  MatrixView<const float> gate) {
  CheckView(y, "y");
  CheckInput(y, target, "target", CallSite::Here());
  CheckInput(y, bias, CallSite::Here());
  CheckInput(y, gate, "gate", CallSite::Here());
  HWY_DYNAMIC_DISPATCH(SigmoidBlendImpl)(y, target, bias, gate);
}

void OnePlusElu(MatrixView<float> y) {
  CheckView(y, "y");
  HWY_DYNAMIC_DISPATCH(OnePlusEluImpl)(y);
}

void SoftCap(MatrixView<float> y, float cap) {
  CheckView(y, "y");
  Check(cap > 0, "cap to be positive");
  HWY_DYNAMIC_DISPATCH(SoftCapImpl)(y, cap);
}

void SoftmaxWeights(MatrixView<float> y, float largest, float temperature) {
  CheckView(y, "y");
  Check(temperature >= 0 && temperature <= std::numeric_limits<float>::max(),
        "temperature to be finite and not negative");
  HWY_DYNAMIC_DISPATCH(SoftmaxWeightsImpl)(y, largest, temperature);
}

void Rwkv7Decay(MatrixView<float> y, absl::Span<const float> bias) {
  CheckView(y, "y");
  CheckInput(y, bias, CallSite::Here());
  HWY_DYNAMIC_DISPATCH(Rwkv7DecayImpl)(y, bias);
}

}  // namespace kvm
#endif  // HWY_ONCE
