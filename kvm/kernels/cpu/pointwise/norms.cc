#include "kvm/kernels/cpu/pointwise/norms.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kvm/base/check.h"
#include "kvm/kernels/check_view.h"

// Highway includes this very file once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvm/kernels/cpu/pointwise/norms.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/highway.h"
#include "kvm/kernels/cpu/pointwise/norms-inl.h"
#include "kvm/kernels/cpu/vectors/float_vectors-inl.h"
#include "kvm/kernels/cpu/vectors/partial_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvm {
namespace HWY_NAMESPACE {
namespace {

void NormalizeRunsImpl(MatrixView<const float> x, int64_t n, const float* weight, const float* bias,
                       int64_t parameter_step, float epsilon, MatrixView<float> out) {
  NormalizeRuns(x, n, weight, bias, parameter_step, epsilon, out);
}

// Divides each run of n columns by max(its length, floor) + epsilon.
void ScaleRunsToUnitLength(MatrixView<const float> x, int64_t n, float floor, float epsilon, MatrixView<float> out) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t begin = 0; begin < x.cols; begin += n) {
      const float* in = x.row(r) + begin;
      float* to = out.row(r) + begin;
      const FloatVector length = hn::Set(d, std::max(std::sqrt(SumSquares(in, n, 0.0f)), floor) + epsilon);
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

HWY_EXPORT(NormalizeRunsImpl);
HWY_EXPORT(ScaleRunsToUnitLength);

namespace {

// Runs of n columns each, of which every one but the first has its own weights when `own_weights`.
void CheckRuns(MatrixView<const float> x, int64_t n, absl::Span<const float> weight, absl::Span<const float> bias,
               bool own_weights, MatrixView<float> out, CallSite site) {
  CheckAtLeast(n, 1, "columns that are normalized together", site);
  CheckView(x, "x", site);
  CheckEq(x.cols % n, 0, "x.cols modulo the columns that are normalized together", site);
  CheckEq(weight.size(), own_weights ? x.cols : n, "weight.size()", site);
  CheckEq(bias.size(), weight.size(), "bias.size()", site);
  CheckView(out, x.rows, x.cols, "out", site);
  CheckSameOrApart(out, x, "out to be x or apart from it", site);
}

void CheckHeads(MatrixView<const float> x, int64_t head_dim, MatrixView<float> out, CallSite site) {
  CheckAtLeast(head_dim, 1, "head_dim", site);
  CheckView(x, "x", site);
  CheckEq(x.cols % head_dim, 0, "x.cols % head_dim", site);
  CheckView(out, x.rows, x.cols, "out", site);
  CheckSameOrApart(out, x, "out to be x or apart from it", site);
}

}  // namespace

void LayerNorm(MatrixView<const float> x, absl::Span<const float> weight, absl::Span<const float> bias, float epsilon,
               MatrixView<float> out) {
  CheckRuns(x, x.cols, weight, bias, /*own_weights=*/false, out, CallSite::Here());
  HWY_DYNAMIC_DISPATCH(NormalizeRunsImpl)(x, x.cols, weight.data(), bias.data(), 0, epsilon, out);
}

void HeadLayerNorm(MatrixView<const float> x, absl::Span<const float> weight, absl::Span<const float> bias,
                   float epsilon, MatrixView<float> out) {
  const int64_t n = static_cast<int64_t>(weight.size());
  CheckRuns(x, n, weight, bias, /*own_weights=*/false, out, CallSite::Here());
  HWY_DYNAMIC_DISPATCH(NormalizeRunsImpl)(x, n, weight.data(), bias.data(), 0, epsilon, out);
}

void GroupNorm(MatrixView<const float> x, int64_t groups, absl::Span<const float> weight, absl::Span<const float> bias,
               float epsilon, MatrixView<float> out) {
  CheckAtLeast(groups, 1, "groups");
  CheckEq(x.cols % groups, 0, "x.cols % groups");
  const int64_t n = x.cols / groups;
  CheckRuns(x, n, weight, bias, /*own_weights=*/true, out, CallSite::Here());
  HWY_DYNAMIC_DISPATCH(NormalizeRunsImpl)(x, n, weight.data(), bias.data(), n, epsilon, out);
}

void HeadUnitLength(MatrixView<const float> x, int64_t head_dim, float floor, MatrixView<float> out) {
  CheckHeads(x, head_dim, out, CallSite::Here());
  HWY_DYNAMIC_DISPATCH(ScaleRunsToUnitLength)(x, head_dim, floor, 0.0f, out);
}

void HeadSoftUnitLength(MatrixView<const float> x, int64_t head_dim, float epsilon, MatrixView<float> out) {
  CheckHeads(x, head_dim, out, CallSite::Here());
  HWY_DYNAMIC_DISPATCH(ScaleRunsToUnitLength)(x, head_dim, 0.0f, epsilon, out);
}

}  // namespace kvm
#endif  // HWY_ONCE
