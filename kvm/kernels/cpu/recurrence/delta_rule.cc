#include "kvm/kernels/cpu/recurrence/delta_rule.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory_resource>

#include "kvm/kernels/cpu/recurrence/recurrence_checks.h"
#include "kvm/kernels/work_buffer.h"

// Highway includes this very file once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvm/kernels/cpu/recurrence/delta_rule.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/highway.h"
#include "kvm/kernels/cpu/vectors/float_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvm {
namespace HWY_NAMESPACE {
namespace {

// What one token brings to all value channels alike.
struct DeltaToken {
  const float* q;
  const float* k;
  const float* decay;
  int64_t decay_step;  // from one key channel's decay to the next: 0 where they share one
  float beta;
  int64_t keys;
};

DeltaToken DeltaTokenAt(const DeltaRuleHead& head, int64_t t) {
  return {head.q.row(t),       head.k.row(t), head.decay.row(t), head.decay.cols == 1 ? 0 : 1,
          head.beta.row(t)[0], head.k.cols};
}

// One token for four vectors of value channels of the state.
HWY_INLINE void DeltaStep4(const DeltaToken& token, const float* HWY_RESTRICT v, float* HWY_RESTRICT state,
                           int64_t stride, float* HWY_RESTRICT out) {
  const PanelTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto predicted0 = hn::Zero(d), predicted1 = hn::Zero(d), predicted2 = hn::Zero(d), predicted3 = hn::Zero(d);
  for (int64_t i = 0; i < token.keys; ++i) {
    const float* row = state + i * stride;
    const auto key = hn::Set(d, token.k[i] * token.decay[i * token.decay_step]);
    predicted0 = hn::MulAdd(key, hn::LoadU(d, row), predicted0);
    predicted1 = hn::MulAdd(key, hn::LoadU(d, row + lanes), predicted1);
    predicted2 = hn::MulAdd(key, hn::LoadU(d, row + 2 * lanes), predicted2);
    predicted3 = hn::MulAdd(key, hn::LoadU(d, row + 3 * lanes), predicted3);
  }
  const auto beta = hn::Set(d, token.beta);
  const auto u0 = hn::Mul(beta, hn::Sub(hn::LoadU(d, v), predicted0));
  const auto u1 = hn::Mul(beta, hn::Sub(hn::LoadU(d, v + lanes), predicted1));
  const auto u2 = hn::Mul(beta, hn::Sub(hn::LoadU(d, v + 2 * lanes), predicted2));
  const auto u3 = hn::Mul(beta, hn::Sub(hn::LoadU(d, v + 3 * lanes), predicted3));
  auto out0 = hn::Zero(d), out1 = hn::Zero(d), out2 = hn::Zero(d), out3 = hn::Zero(d);
  for (int64_t i = 0; i < token.keys; ++i) {
    float* row = state + i * stride;
    const auto key = hn::Set(d, token.k[i]);
    const auto query = hn::Set(d, token.q[i]);
    const auto decay = hn::Set(d, token.decay[i * token.decay_step]);
    const auto s0 = hn::MulAdd(decay, hn::LoadU(d, row), hn::Mul(key, u0));
    const auto s1 = hn::MulAdd(decay, hn::LoadU(d, row + lanes), hn::Mul(key, u1));
    const auto s2 = hn::MulAdd(decay, hn::LoadU(d, row + 2 * lanes), hn::Mul(key, u2));
    const auto s3 = hn::MulAdd(decay, hn::LoadU(d, row + 3 * lanes), hn::Mul(key, u3));
    hn::StoreU(s0, d, row);
    hn::StoreU(s1, d, row + lanes);
    hn::StoreU(s2, d, row + 2 * lanes);
    hn::StoreU(s3, d, row + 3 * lanes);
    out0 = hn::MulAdd(query, s0, out0);
    out1 = hn::MulAdd(query, s1, out1);
    out2 = hn::MulAdd(query, s2, out2);
    out3 = hn::MulAdd(query, s3, out3);
  }
  hn::StoreU(out0, d, out);
  hn::StoreU(out1, d, out + lanes);
  hn::StoreU(out2, d, out + 2 * lanes);
  hn::StoreU(out3, d, out + 3 * lanes);
}

// The same for one vector.
HWY_INLINE void DeltaStep1(const DeltaToken& token, const float* HWY_RESTRICT v, float* HWY_RESTRICT state,
                           int64_t stride, float* HWY_RESTRICT out) {
  const PanelTag d;
  auto predicted = hn::Zero(d);
  for (int64_t i = 0; i < token.keys; ++i) {
    const auto key = hn::Set(d, token.k[i] * token.decay[i * token.decay_step]);
    predicted = hn::MulAdd(key, hn::LoadU(d, state + i * stride), predicted);
  }
  const auto u = hn::Mul(hn::Set(d, token.beta), hn::Sub(hn::LoadU(d, v), predicted));
  auto sum = hn::Zero(d);
  for (int64_t i = 0; i < token.keys; ++i) {
    const auto decay = hn::Set(d, token.decay[i * token.decay_step]);
    const auto added = hn::Mul(hn::Set(d, token.k[i]), u);
    const auto s = hn::MulAdd(decay, hn::LoadU(d, state + i * stride), added);
    hn::StoreU(s, d, state + i * stride);
    sum = hn::MulAdd(hn::Set(d, token.q[i]), s, sum);
  }
  hn::StoreU(sum, d, out);
}

// The last `count` < lanes value channels, from a padded copy of their part of the state.
void DeltaTail(const DeltaRuleHead& head, int64_t first, int64_t count, std::pmr::memory_resource* memory) {
  const int64_t lanes = PanelLanes();
  const int64_t keys = head.k.cols, values = head.v.cols;
  const size_t bytes = static_cast<size_t>(count) * sizeof(float);
  const WorkBuffer state(keys * lanes, memory);
  HWY_ALIGN float v[16] = {};
  HWY_ALIGN float out[16];
  for (int64_t i = 0; i < keys; ++i) std::memcpy(state.data() + i * lanes, head.state + i * values + first, bytes);
  for (int64_t t = 0; t < head.k.rows; ++t) {
    std::memcpy(v, head.v.row(t) + first, bytes);
    DeltaStep1(DeltaTokenAt(head, t), v, state.data(), lanes, out);
    std::memcpy(head.out.row(t) + first, out, bytes);
  }
  for (int64_t i = 0; i < keys; ++i) std::memcpy(head.state + i * values + first, state.data() + i * lanes, bytes);
}

// Value channels are independent of each other: all tokens for some of them before the next ones, whose part of the
// state then stays in the nearest cache.
void DeltaRuleHeadImpl(const DeltaRuleHead& head, std::pmr::memory_resource* memory) {
  const int64_t lanes = PanelLanes();
  const int64_t n = head.k.rows;
  const int64_t values = head.v.cols;
  int64_t c = 0;
  for (; c + 4 * lanes <= values; c += 4 * lanes) {
    for (int64_t t = 0; t < n; ++t) {
      DeltaStep4(DeltaTokenAt(head, t), head.v.row(t) + c, head.state + c, values, head.out.row(t) + c);
    }
  }
  for (; c + lanes <= values; c += lanes) {
    for (int64_t t = 0; t < n; ++t) {
      DeltaStep1(DeltaTokenAt(head, t), head.v.row(t) + c, head.state + c, values, head.out.row(t) + c);
    }
  }
  if (c < values && n > 0) DeltaTail(head, c, values - c, memory);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvm {

HWY_EXPORT(DeltaRuleHeadImpl);

void DeltaRule(absl::Span<const DeltaRuleHead> heads, ThreadPool& pool) {
  for (const DeltaRuleHead& head : heads) CheckHead(head, CallSite::Here());
  const auto run = HWY_DYNAMIC_DISPATCH(DeltaRuleHeadImpl);
  pool.ParallelFor(static_cast<int64_t>(heads.size()), [&](int64_t h) { run(heads[h], pool.memory()); });
}

}  // namespace kvm
#endif  // HWY_ONCE
