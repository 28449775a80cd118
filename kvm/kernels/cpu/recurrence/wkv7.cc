#include "kvm/kernels/cpu/recurrence/wkv7.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory_resource>

#include "kvm/kernels/cpu/recurrence/recurrence_checks.h"
#include "kvm/kernels/work_buffer.h"

// Highway includes this very file once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvm/kernels/cpu/recurrence/wkv7.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/highway.h"
#include "kvm/kernels/cpu/vectors/float_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvm {
namespace HWY_NAMESPACE {
namespace {

// What one token contributes besides its value, per key channel.
struct TokenKeys {
  const float* r;
  const float* w;
  const float* k;
  const float* kappa;
  const float* a;
};

TokenKeys TokenAt(const Wkv7Head& head, int64_t t) {
  return {head.r.row(t), head.w.row(t), head.k.row(t), head.kappa.row(t), head.a.row(t)};
}

// One token for four vectors of value channels of the state.
HWY_INLINE void Step4(const TokenKeys& token, const float* HWY_RESTRICT v, int64_t dim, float* HWY_RESTRICT state,
                      int64_t stride, float* HWY_RESTRICT out) {
  const PanelTag d;
  const int64_t lanes = PanelLanes();
  auto removed0 = hn::Zero(d), removed1 = hn::Zero(d), removed2 = hn::Zero(d), removed3 = hn::Zero(d);
  for (int64_t i = 0; i < dim; ++i) {
    const float* row = state + i * stride;
    const auto kappa = hn::Set(d, token.kappa[i]);
    removed0 = hn::MulAdd(kappa, hn::LoadU(d, row), removed0);
    removed1 = hn::MulAdd(kappa, hn::LoadU(d, row + lanes), removed1);
    removed2 = hn::MulAdd(kappa, hn::LoadU(d, row + 2 * lanes), removed2);
    removed3 = hn::MulAdd(kappa, hn::LoadU(d, row + 3 * lanes), removed3);
  }
  const auto v0 = hn::LoadU(d, v), v1 = hn::LoadU(d, v + lanes);
  const auto v2 = hn::LoadU(d, v + 2 * lanes), v3 = hn::LoadU(d, v + 3 * lanes);
  auto out0 = hn::Zero(d), out1 = hn::Zero(d), out2 = hn::Zero(d), out3 = hn::Zero(d);
  for (int64_t i = 0; i < dim; ++i) {
    float* row = state + i * stride;
    const auto rate = hn::Set(d, token.kappa[i] * token.a[i]);
    const auto k = hn::Set(d, token.k[i]);
    const auto w = hn::Set(d, token.w[i]);
    const auto r = hn::Set(d, token.r[i]);
    const auto s0 = hn::MulAdd(w, hn::LoadU(d, row), hn::NegMulAdd(rate, removed0, hn::Mul(k, v0)));
    const auto s1 = hn::MulAdd(w, hn::LoadU(d, row + lanes), hn::NegMulAdd(rate, removed1, hn::Mul(k, v1)));
    const auto s2 = hn::MulAdd(w, hn::LoadU(d, row + 2 * lanes), hn::NegMulAdd(rate, removed2, hn::Mul(k, v2)));
    const auto s3 = hn::MulAdd(w, hn::LoadU(d, row + 3 * lanes), hn::NegMulAdd(rate, removed3, hn::Mul(k, v3)));
    hn::StoreU(s0, d, row);
    hn::StoreU(s1, d, row + lanes);
    hn::StoreU(s2, d, row + 2 * lanes);
    hn::StoreU(s3, d, row + 3 * lanes);
    out0 = hn::MulAdd(r, s0, out0);
    out1 = hn::MulAdd(r, s1, out1);
    out2 = hn::MulAdd(r, s2, out2);
    out3 = hn::MulAdd(r, s3, out3);
  }
  hn::StoreU(out0, d, out);
  hn::StoreU(out1, d, out + lanes);
  hn::StoreU(out2, d, out + 2 * lanes);
  hn::StoreU(out3, d, out + 3 * lanes);
}

// The same for one vector.
HWY_INLINE void Step1(const TokenKeys& token, const float* HWY_RESTRICT v, int64_t dim, float* HWY_RESTRICT state,
                      int64_t stride, float* HWY_RESTRICT out) {
  const PanelTag d;
  auto removed = hn::Zero(d);
  for (int64_t i = 0; i < dim; ++i) {
    removed = hn::MulAdd(hn::Set(d, token.kappa[i]), hn::LoadU(d, state + i * stride), removed);
  }
  const auto value = hn::LoadU(d, v);
  auto sum = hn::Zero(d);
  for (int64_t i = 0; i < dim; ++i) {
    const auto rate = hn::Set(d, token.kappa[i] * token.a[i]);
    const auto added = hn::NegMulAdd(rate, removed, hn::Mul(hn::Set(d, token.k[i]), value));
    const auto s = hn::MulAdd(hn::Set(d, token.w[i]), hn::LoadU(d, state + i * stride), added);
    hn::StoreU(s, d, state + i * stride);
    sum = hn::MulAdd(hn::Set(d, token.r[i]), s, sum);
  }
  hn::StoreU(sum, d, out);
}

// The last `count` < lanes value channels, from a padded copy of their part of the state.
void RunTail(const Wkv7Head& head, int64_t first, int64_t count, std::pmr::memory_resource* memory) {
  const int64_t lanes = PanelLanes();
  const int64_t dim = head.r.cols;
  const size_t bytes = static_cast<size_t>(count) * sizeof(float);
  const WorkBuffer state(dim * lanes, memory);
  HWY_ALIGN float v[16] = {};
  HWY_ALIGN float out[16];
  for (int64_t i = 0; i < dim; ++i) std::memcpy(state.data() + i * lanes, head.state + i * dim + first, bytes);
  for (int64_t t = 0; t < head.r.rows; ++t) {
    std::memcpy(v, head.v.row(t) + first, bytes);
    Step1(TokenAt(head, t), v, dim, state.data(), lanes, out);
    std::memcpy(head.out.row(t) + first, out, bytes);
  }
  for (int64_t i = 0; i < dim; ++i) std::memcpy(head.state + i * dim + first, state.data() + i * lanes, bytes);
}

// Value channels are independent of each other: all tokens for some of them before the next ones, whose part of the
// state then stays in the nearest cache.
void Wkv7HeadImpl(const Wkv7Head& head, std::pmr::memory_resource* memory) {
  const int64_t lanes = PanelLanes();
  const int64_t n = head.r.rows;
  const int64_t dim = head.r.cols;
  int64_t c = 0;
  for (; c + 4 * lanes <= dim; c += 4 * lanes) {
    for (int64_t t = 0; t < n; ++t) {
      Step4(TokenAt(head, t), head.v.row(t) + c, dim, head.state + c, dim, head.out.row(t) + c);
    }
  }
  for (; c + lanes <= dim; c += lanes) {
    for (int64_t t = 0; t < n; ++t) {
      Step1(TokenAt(head, t), head.v.row(t) + c, dim, head.state + c, dim, head.out.row(t) + c);
    }
  }
  if (c < dim) RunTail(head, c, dim - c, memory);
}

// One head of one token.
HWY_INLINE void HeadKeys(float* HWY_RESTRICT k, const float* HWY_RESTRICT a, const float* HWY_RESTRICT k_k,
                         const float* HWY_RESTRICT k_a, int64_t dim, float* HWY_RESTRICT kappa) {
  const PanelTag d;
  const int64_t lanes = PanelLanes();
  const auto one = hn::Set(d, 1.0f);
  auto squares = hn::Zero(d);
  int64_t c = 0;
  for (; c + lanes <= dim; c += lanes) {
    const auto key = hn::LoadU(d, k + c);
    const auto direction = hn::Mul(key, hn::LoadU(d, k_k + c));
    hn::StoreU(direction, d, kappa + c);
    squares = hn::MulAdd(direction, direction, squares);
    const auto factor = hn::MulAdd(hn::Sub(hn::LoadU(d, a + c), one), hn::LoadU(d, k_a + c), one);
    hn::StoreU(hn::Mul(key, factor), d, k + c);
  }
  float square = hn::GetLane(hn::SumOfLanes(d, squares));
  for (; c < dim; ++c) {
    kappa[c] = k[c] * k_k[c];
    square += kappa[c] * kappa[c];
    k[c] *= 1.0f + (a[c] - 1.0f) * k_a[c];
  }
  const float norm = std::max(std::sqrt(square), 1e-12f);
  for (c = 0; c + lanes <= dim; c += lanes) {
    hn::StoreU(hn::Div(hn::LoadU(d, kappa + c), hn::Set(d, norm)), d, kappa + c);
  }
  for (; c < dim; ++c) kappa[c] /= norm;
}

// One head of one token.
HWY_INLINE void HeadBonus(float* HWY_RESTRICT out, const float* HWY_RESTRICT r, const float* HWY_RESTRICT k,
                          const float* HWY_RESTRICT v, const float* HWY_RESTRICT r_k, const float* HWY_RESTRICT g,
                          int64_t dim) {
  const PanelTag d;
  const int64_t lanes = PanelLanes();
  auto sum = hn::Zero(d);
  int64_t c = 0;
  for (; c + lanes <= dim; c += lanes) {
    sum = hn::MulAdd(hn::Mul(hn::LoadU(d, r + c), hn::LoadU(d, k + c)), hn::LoadU(d, r_k + c), sum);
  }
  float bonus = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; c < dim; ++c) bonus += r[c] * k[c] * r_k[c];
  for (c = 0; c + lanes <= dim; c += lanes) {
    const auto with_bonus = hn::MulAdd(hn::Set(d, bonus), hn::LoadU(d, v + c), hn::LoadU(d, out + c));
    hn::StoreU(hn::Mul(with_bonus, hn::LoadU(d, g + c)), d, out + c);
  }
  for (; c < dim; ++c) out[c] = (out[c] + bonus * v[c]) * g[c];
}

void KeysImpl(MatrixView<float> k, MatrixView<const float> a, const float* k_k, const float* k_a, int64_t head_dim,
              MatrixView<float> kappa) {
  for (int64_t t = 0; t < k.rows; ++t) {
    for (int64_t c = 0; c < k.cols; c += head_dim) {
      HeadKeys(k.row(t) + c, a.row(t) + c, k_k + c, k_a + c, head_dim, kappa.row(t) + c);
    }
  }
}

void BonusImpl(MatrixView<float> out, MatrixView<const float> r, MatrixView<const float> k, MatrixView<const float> v,
               const float* r_k, int64_t head_dim, MatrixView<const float> g) {
  for (int64_t t = 0; t < out.rows; ++t) {
    for (int64_t c = 0; c < out.cols; c += head_dim) {
      HeadBonus(out.row(t) + c, r.row(t) + c, k.row(t) + c, v.row(t) + c, r_k + c, g.row(t) + c, head_dim);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvm {

HWY_EXPORT(Wkv7HeadImpl);
HWY_EXPORT(KeysImpl);
HWY_EXPORT(BonusImpl);

namespace {

void CheckHeads(int64_t cols, int64_t head_dim, CallSite site) {
  CheckAtLeast(head_dim, 1, "head_dim", site);
  CheckEq(cols % head_dim, 0, "columns % head_dim", site);
}

}  // namespace

void Wkv7Keys(MatrixView<float> k, MatrixView<const float> a, absl::Span<const float> k_k, absl::Span<const float> k_a,
              int64_t head_dim, MatrixView<float> kappa) {
  CheckView(k, "k");
  CheckHeads(k.cols, head_dim, CallSite::Here());
  CheckView(a, k.rows, k.cols, "a");
  CheckEq(k_k.size(), k.cols, "k_k.size()");
  CheckEq(k_a.size(), k.cols, "k_a.size()");
  CheckView(kappa, k.rows, k.cols, "kappa");
  CheckApart(kappa, k, "kappa to share no memory with k");
  HWY_DYNAMIC_DISPATCH(KeysImpl)(k, a, k_k.data(), k_a.data(), head_dim, kappa);
}

void Wkv7(absl::Span<const Wkv7Head> heads, ThreadPool& pool) {
  for (const Wkv7Head& head : heads) CheckHead(head, CallSite::Here());
  const auto run = HWY_DYNAMIC_DISPATCH(Wkv7HeadImpl);
  pool.ParallelFor(static_cast<int64_t>(heads.size()), [&](int64_t h) { run(heads[h], pool.memory()); });
}

void Wkv7BonusAndGate(MatrixView<float> out, MatrixView<const float> r, MatrixView<const float> k,
                      MatrixView<const float> v, absl::Span<const float> r_k, int64_t head_dim,
                      MatrixView<const float> g) {
  CheckView(out, "out");
  CheckHeads(out.cols, head_dim, CallSite::Here());
  CheckView(r, out.rows, out.cols, "r");
  CheckView(k, out.rows, out.cols, "k");
  CheckView(v, out.rows, out.cols, "v");
  CheckView(g, out.rows, out.cols, "g");
  CheckEq(r_k.size(), out.cols, "r_k.size()");
  for (const MatrixView<const float>& input : {r, k, v, g}) {
    CheckApart(out, input, "out to share no memory with what is read");
  }
  HWY_DYNAMIC_DISPATCH(BonusImpl)(out, r, k, v, r_k.data(), head_dim, g);
}

}  // namespace kvm
#endif  // HWY_ONCE
