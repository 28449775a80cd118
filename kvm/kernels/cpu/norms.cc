#include "kvm/kernels/cpu/norms.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>

// Highway includes this very file once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvm/kernels/cpu/norms.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/highway.h"
#include "kvm/kernels/cpu/partial_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvm {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

float Sum(const float* HWY_RESTRICT x, size_t n) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  V sum0 = hn::Zero(d), sum1 = sum0;
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    sum0 = hn::Add(sum0, hn::LoadU(d, x + i));
    sum1 = hn::Add(sum1, hn::LoadU(d, x + i + lanes));
  }
  for (; i < n; i += lanes) sum0 = hn::Add(sum0, LoadFirst(d, x + i, std::min(lanes, n - i)));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
}

// Σ (x − mean)².
float SumSquares(const float* HWY_RESTRICT x, size_t n, float mean) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  const V mean_v = hn::Set(d, mean);
  V sum0 = hn::Zero(d), sum1 = sum0;
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const V x0 = hn::Sub(hn::LoadU(d, x + i), mean_v);
    const V x1 = hn::Sub(hn::LoadU(d, x + i + lanes), mean_v);
    sum0 = hn::MulAdd(x0, x0, sum0);
    sum1 = hn::MulAdd(x1, x1, sum1);
  }
  for (; i < n; i += lanes) {
    const size_t count = std::min(lanes, n - i);
    const V centred = hn::Sub(LoadFirst(d, x + i, count), mean_v);
    const V present = hn::IfThenElseZero(hn::FirstN(d, count), centred);
    sum0 = hn::MulAdd(present, present, sum0);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
}

// Normalizes runs of n columns; each run's weights and biases begin `parameter_step` after the run's before it.
void NormalizeRuns(MatrixView<const float> x, int64_t n, const float* weight, const float* bias, int64_t parameter_step,
                   float epsilon, MatrixView<float> out) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* w = weight;
    const float* b = bias;
    for (int64_t begin = 0; begin < x.cols; begin += n, w += parameter_step, b += parameter_step) {
      const float* in = x.row(r) + begin;
      float* to = out.row(r) + begin;
      const float mean = Sum(in, n) / static_cast<float>(n);
      const float variance = SumSquares(in, n, mean) / static_cast<float>(n);
      const V mean_v = hn::Set(d, mean);
      const V scale = hn::Set(d, 1.0f / std::sqrt(variance + epsilon));
      for (int64_t i = 0; i < n; i += lanes) {
        const size_t count = static_cast<size_t>(std::min(lanes, n - i));
        const V unit = hn::Mul(hn::Sub(LoadFirst(d, in + i, count), mean_v), scale);
        StoreFirst(hn::MulAdd(unit, LoadFirst(d, w + i, count), LoadFirst(d, b + i, count)), d, to + i, count);
      }
    }
  }
}

// Divides each run of n columns by max(its length, floor) + epsilon.
void ScaleRunsToUnitLength(MatrixView<const float> x, int64_t n, float floor, float epsilon, MatrixView<float> out) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t begin = 0; begin < x.cols; begin += n) {
      const float* in = x.row(r) + begin;
      float* to = out.row(r) + begin;
      const V length = hn::Set(d, std::max(std::sqrt(SumSquares(in, n, 0.0f)), floor) + epsilon);
      for (int64_t i = 0; i < n; i += lanes) {
        const size_t count = static_cast<size_t>(std::min(lanes, n - i));
        StoreFirst(hn::Div(LoadFirst(d, in + i, count), length), d, to + i, count);
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

HWY_EXPORT(NormalizeRuns);
HWY_EXPORT(ScaleRunsToUnitLength);

void LayerNorm(MatrixView<const float> x, absl::Span<const float> weight, absl::Span<const float> bias, float epsilon,
               MatrixView<float> out) {
  GroupNorm(x, 1, weight, bias, epsilon, out);
}

void HeadLayerNorm(MatrixView<const float> x, absl::Span<const float> weight, absl::Span<const float> bias,
                   float epsilon, MatrixView<float> out) {
  const int64_t n = static_cast<int64_t>(weight.size());
  assert(n > 0 && x.cols % n == 0 && bias.size() == weight.size());
  HWY_DYNAMIC_DISPATCH(NormalizeRuns)(x, n, weight.data(), bias.data(), 0, epsilon, out);
}

void GroupNorm(MatrixView<const float> x, int64_t groups, absl::Span<const float> weight, absl::Span<const float> bias,
               float epsilon, MatrixView<float> out) {
  assert(x.cols > 0 && x.cols % groups == 0);
  assert(static_cast<int64_t>(weight.size()) == x.cols && bias.size() == weight.size());
  const int64_t n = x.cols / groups;
  HWY_DYNAMIC_DISPATCH(NormalizeRuns)(x, n, weight.data(), bias.data(), n, epsilon, out);
}

void HeadUnitLength(MatrixView<const float> x, int64_t head_dim, float floor, MatrixView<float> out) {
  assert(head_dim > 0 && x.cols % head_dim == 0);
  HWY_DYNAMIC_DISPATCH(ScaleRunsToUnitLength)(x, head_dim, floor, 0.0f, out);
}

void HeadSoftUnitLength(MatrixView<const float> x, int64_t head_dim, float epsilon, MatrixView<float> out) {
  assert(head_dim > 0 && x.cols % head_dim == 0);
  HWY_DYNAMIC_DISPATCH(ScaleRunsToUnitLength)(x, head_dim, 0.0f, epsilon, out);
}

}  // namespace kvm
#endif  // HWY_ONCE
