// Sums over rows and their normalization. Included once per instruction set.

// clang-format off
#if defined(KVM_KERNELS_CPU_POINTWISE_NORMS_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT
// clang-format on
#ifdef KVM_KERNELS_CPU_POINTWISE_NORMS_INL_H_
#undef KVM_KERNELS_CPU_POINTWISE_NORMS_INL_H_
#else
#define KVM_KERNELS_CPU_POINTWISE_NORMS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kvm/kernels/cpu/vectors/float_vectors-inl.h"
#include "kvm/kernels/cpu/vectors/partial_vector-inl.h"
#include "kvm/kernels/matrix_view.h"

HWY_BEFORE_NAMESPACE();
namespace kvm {
namespace HWY_NAMESPACE {

HWY_INLINE float Sum(const float* HWY_RESTRICT x, size_t n) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  FloatVector sum0 = hn::Zero(d), sum1 = sum0;
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    sum0 = hn::Add(sum0, hn::LoadU(d, x + i));
    sum1 = hn::Add(sum1, hn::LoadU(d, x + i + lanes));
  }
  for (; i < n; i += lanes) sum0 = hn::Add(sum0, LoadFirst(d, x + i, std::min(lanes, n - i)));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
}

// Σ (x − mean)².
HWY_INLINE float SumSquares(const float* HWY_RESTRICT x, size_t n, float mean) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const FloatVector mean_v = hn::Set(d, mean);
  FloatVector sum0 = hn::Zero(d), sum1 = sum0;
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const FloatVector x0 = hn::Sub(hn::LoadU(d, x + i), mean_v);
    const FloatVector x1 = hn::Sub(hn::LoadU(d, x + i + lanes), mean_v);
    sum0 = hn::MulAdd(x0, x0, sum0);
    sum1 = hn::MulAdd(x1, x1, sum1);
  }
  for (; i < n; i += lanes) {
    const size_t count = std::min(lanes, n - i);
    const FloatVector centred = hn::Sub(LoadFirst(d, x + i, count), mean_v);
    const FloatVector present = hn::IfThenElseZero(hn::FirstN(d, count), centred);
    sum0 = hn::MulAdd(present, present, sum0);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
}

// Normalizes runs of n columns; each run's weights and biases begin `parameter_step` after the run's before it.
HWY_INLINE void NormalizeRuns(MatrixView<const float> x, int64_t n, const float* weight, const float* bias,
                              int64_t parameter_step, float epsilon, MatrixView<float> out) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* w = weight;
    const float* b = bias;
    for (int64_t begin = 0; begin < x.cols; begin += n, w += parameter_step, b += parameter_step) {
      const float* in = x.row(r) + begin;
      float* to = out.row(r) + begin;
      const float mean = Sum(in, n) / static_cast<float>(n);
      const float variance = SumSquares(in, n, mean) / static_cast<float>(n);
      const FloatVector mean_v = hn::Set(d, mean);
      const FloatVector scale = hn::Set(d, 1.0f / std::sqrt(variance + epsilon));
      for (int64_t i = 0; i < n; i += lanes) {
        const size_t count = static_cast<size_t>(std::min(lanes, n - i));
        const FloatVector unit = hn::Mul(hn::Sub(LoadFirst(d, in + i, count), mean_v), scale);
        StoreFirst(hn::MulAdd(unit, LoadFirst(d, w + i, count), LoadFirst(d, b + i, count)), d, to + i, count);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvm
HWY_AFTER_NAMESPACE();

#endif  // toggled once per instruction set
