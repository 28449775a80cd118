#include "kvm/kernels/cpu/recurrence/chunked_delta.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kvm/kernels/cpu/recurrence/recurrence_checks.h"

// Highway includes this very file once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvm/kernels/cpu/recurrence/chunked_delta.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target:
#include "hwy/aligned_allocator.h"
#include "hwy/highway.h"
#include "kvm/kernels/cpu/vectors/float_vectors-inl.h"
#include "kvm/kernels/cpu/vectors/partial_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvm {
namespace HWY_NAMESPACE {
namespace {

// Every recurrence here is, for one token,
//
//   u = h + Sᵀb;  S ← diag(w)·S + p ⊗ u [+ k ⊗ v];  o = Sᵀr    (the old S in u, the new one in o)
//
// A token writes once (p ⊗ u) or twice. Writes are numbered through: token t's begin at num_writes·t, u first.

// Writes of a chunk: one vector of them on the widest targets. Longer chunks decay and score more pairs of tokens,
// shorter ones load and store the state more often.
constexpr int64_t kMaxWrites = 16;

// Value channels that are worked on together: two vectors.
int64_t PanelWidth() { return 2 * PanelLanes(); }

// What one head works with. Rows over key channels are `key_stride` apart; nothing past the last channel is used.
struct Work {
  Work(int64_t dim, int64_t value_dim, int64_t num_writes)
      : dim(dim),
        value_dim(value_dim),
        num_writes(num_writes),
        chunk(kMaxWrites / num_writes),
        key_stride(hwy::RoundUpTo(dim, PanelLanes())),
        num_panels(hwy::DivCeil(value_dim, PanelWidth())) {
    const int64_t rows = chunk * key_stride, scores = chunk * kMaxWrites;
    const struct {
      float** array;
      int64_t size;
    } parts[] = {
        {&w, rows},
        {&b, rows},
        {&r, rows},
        {&queries, std::max(2 * chunk, kMaxWrites) * key_stride},
        {&decay, key_stride},
        {&writes, key_stride * kMaxWrites},
        {&b_score, scores},
        {&r_score, scores},
        {&value_scale, chunk},
        {&write_values, kMaxWrites * PanelWidth()},
        {&reads, 2 * chunk * PanelWidth()},
        {&state, num_panels * dim * PanelWidth()},
    };
    const auto padded = [](int64_t size) { return static_cast<int64_t>(hwy::RoundUpTo(size, 16)); };
    int64_t total = 0;
    for (const auto& part : parts) total += padded(part.size);
    memory = hwy::AllocateAligned<float>(static_cast<size_t>(total));
    std::fill_n(memory.get(), total, 0.0f);
    float* next = memory.get();
    for (const auto& part : parts) {
      *part.array = next;
      next += padded(part.size);
    }
  }

  int64_t dim, value_dim, num_writes, chunk, key_stride, num_panels;
  float *w, *b, *r;          // [token, key channel]
  float* queries;            // b then r of the chunk's tokens, decayed to act on the state at its beginning
  float* decay;              // [key channel], over the whole chunk
  float* writes;             // p and k, [key channel, write]; in the end decayed to the end of the chunk
  float *b_score, *r_score;  // [token, write]: how much of a write b and r see
  float* value_scale;        // [token]: h (one write) or what is written with k (two) is this times the value
  float* write_values;       // u and v, [write, value channel of the panel]
  float* reads;              // queries times state, [query, value channel of the panel]
  float* state;              // [panel, key channel, value channel of the panel]
  hwy::AlignedFreeUniquePtr<float[]> memory;
};

void LoadState(const float* state, Work& work) {
  const int64_t width = PanelWidth();
  for (int64_t panel = 0; panel < work.num_panels; ++panel) {
    const int64_t first = panel * width, count = std::min(width, work.value_dim - first);
    for (int64_t c = 0; c < work.dim; ++c) {
      std::copy_n(state + c * work.value_dim + first, count, work.state + (panel * work.dim + c) * width);
    }
  }
}

void StoreState(const Work& work, float* state) {
  const int64_t width = PanelWidth();
  for (int64_t panel = 0; panel < work.num_panels; ++panel) {
    const int64_t first = panel * width, count = std::min(width, work.value_dim - first);
    for (int64_t c = 0; c < work.dim; ++c) {
      std::copy_n(work.state + (panel * work.dim + c) * width, count, state + c * work.value_dim + first);
    }
  }
}

// Calls body(channel, count) for each vector of key channels.
template <typename Body>
HWY_INLINE void ForKeyVectors(int64_t dim, Body body) {
  const int64_t lanes = PanelLanes();
  for (int64_t c = 0; c < dim; c += lanes) body(c, static_cast<size_t>(std::min(lanes, dim - c)));
}

// The key of a write, as a row until TransposeWrites. The queries' memory is free until then.
HWY_INLINE float* WriteKey(int64_t write, const Work& work) { return work.queries + write * work.key_stride; }

void TransposeWrites(int64_t n, Work& work) {
  const PanelTag d;
  HWY_ALIGN float columns[4 * hn::MaxLanes(d)];
  for (int64_t write = 0; write < n * work.num_writes; write += 4) {
    const float* const rows = WriteKey(write, work);
    for (int64_t c = 0; c < work.key_stride; c += PanelLanes()) {
      const auto row = [&](int64_t r) HWY_ATTR { return hn::LoadU(d, rows + r * work.key_stride + c); };
      hn::StoreInterleaved4(row(0), row(1), row(2), row(3), d, columns);
      for (int64_t i = 0; i < PanelLanes(); ++i) {
        std::memcpy(work.writes + (c + i) * kMaxWrites + write, columns + 4 * i, 4 * sizeof(float));
      }
    }
  }
}

// RWKV-7: h = 0, b = −κ, p = κ ⊙ a.
void FillToken(const Wkv7Head& head, int64_t row, int64_t t, Work& work) {
  const int64_t at = t * work.key_stride;
  const float *kappa = head.kappa.row(row), *a = head.a.row(row), *k = head.k.row(row);
  const float *w = head.w.row(row), *r = head.r.row(row);
  ForKeyVectors(work.dim, [&](int64_t c, size_t count) HWY_ATTR {
    const PanelVector direction = LoadFirst(PanelTag(), kappa + c, count);
    hn::StoreU(hn::Neg(direction), PanelTag(), work.b + at + c);
    hn::StoreU(LoadFirst(PanelTag(), w + c, count), PanelTag(), work.w + at + c);
    hn::StoreU(LoadFirst(PanelTag(), r + c, count), PanelTag(), work.r + at + c);
    hn::StoreU(hn::Mul(direction, LoadFirst(PanelTag(), a + c, count)), PanelTag(), WriteKey(2 * t, work) + c);
    hn::StoreU(LoadFirst(PanelTag(), k + c, count), PanelTag(), WriteKey(2 * t + 1, work) + c);
  });
  work.value_scale[t] = 1;
}

// Delta rules: h = βv, b = −β·decay ⊙ k, p = k.
void FillToken(const DeltaRuleHead& head, int64_t row, int64_t t, Work& work) {
  const int64_t at = t * work.key_stride;
  const float *k = head.k.row(row), *q = head.q.row(row), *decay = head.decay.row(row);
  const bool per_channel = head.decay.cols > 1;
  const float beta = *head.beta.row(row);
  ForKeyVectors(work.dim, [&](int64_t c, size_t count) HWY_ATTR {
    const PanelVector w = per_channel ? LoadFirst(PanelTag(), decay + c, count) : hn::Set(PanelTag(), *decay);
    hn::StoreU(w, PanelTag(), work.w + at + c);
    const PanelVector key = LoadFirst(PanelTag(), k + c, count);
    hn::StoreU(key, PanelTag(), WriteKey(t, work) + c);
    hn::StoreU(hn::Mul(hn::Set(PanelTag(), -beta), hn::Mul(w, key)), PanelTag(), work.b + at + c);
    hn::StoreU(LoadFirst(PanelTag(), q + c, count), PanelTag(), work.r + at + c);
  });
  work.value_scale[t] = beta;
}

// Decays from the chunk's beginning, as running products: never above 1, never divided by.
void DecayQueries(int64_t n, Work& work) {
  ForKeyVectors(work.dim, [&](int64_t c, size_t) HWY_ATTR {
    PanelVector decay = hn::Set(PanelTag(), 1.0f);
    for (int64_t t = 0; t < n; ++t) {
      const int64_t at = t * work.key_stride + c;
      hn::StoreU(hn::Mul(hn::LoadU(PanelTag(), work.b + at), decay), PanelTag(), work.queries + at);
      decay = hn::Mul(decay, hn::LoadU(PanelTag(), work.w + at));
      hn::StoreU(hn::Mul(hn::LoadU(PanelTag(), work.r + at), decay), PanelTag(),
                 work.queries + n * work.key_stride + at);
    }
    hn::StoreU(decay, PanelTag(), work.decay + c);
  });
}

// One token, one key channel: x holds a vector of writes as decayed up to the token before.
HWY_INLINE void ScoreChannel(float w, float b, float r, hn::Mask<PanelTag> written, PanelVector& x, PanelVector& b_sum,
                             PanelVector& r_sum) {
  b_sum = hn::MulAdd(hn::Set(PanelTag(), b), x, b_sum);
  x = hn::IfThenElse(written, hn::Mul(x, hn::Set(PanelTag(), w)), x);
  r_sum = hn::MulAdd(hn::Set(PanelTag(), r), x, r_sum);
}

// Scores of four tokens against one vector of writes, which is decayed along. What is computed for writes that a
// token does not see is not used.
void ScoreTokens(int64_t t, int64_t first_write, Work& work) {
  const PanelTag d;
  const int64_t stride = work.key_stride;
  const float* HWY_RESTRICT w = work.w + t * stride;
  const float* HWY_RESTRICT b = work.b + t * stride;
  const float* HWY_RESTRICT r = work.r + t * stride;
  float* HWY_RESTRICT writes = work.writes + first_write;
  const auto written = [&](int64_t token) HWY_ATTR {
    return hn::FirstN(d,
                      static_cast<size_t>(std::clamp<int64_t>(token * work.num_writes - first_write, 0, PanelLanes())));
  };
  const auto written0 = written(t), written1 = written(t + 1), written2 = written(t + 2), written3 = written(t + 3);
  PanelVector b0 = hn::Zero(d), b1 = b0, b2 = b0, b3 = b0, r0 = b0, r1 = b0, r2 = b0, r3 = b0;
  for (int64_t c = 0; c < work.dim; ++c) {
    PanelVector x = hn::LoadU(d, writes + c * kMaxWrites);
    ScoreChannel(w[c], b[c], r[c], written0, x, b0, r0);
    ScoreChannel(w[c + stride], b[c + stride], r[c + stride], written1, x, b1, r1);
    ScoreChannel(w[c + 2 * stride], b[c + 2 * stride], r[c + 2 * stride], written2, x, b2, r2);
    ScoreChannel(w[c + 3 * stride], b[c + 3 * stride], r[c + 3 * stride], written3, x, b3, r3);
    hn::StoreU(x, d, writes + c * kMaxWrites);
  }
  float* const b_score = work.b_score + t * kMaxWrites + first_write;
  float* const r_score = work.r_score + t * kMaxWrites + first_write;
  hn::StoreU(b0, d, b_score);
  hn::StoreU(b1, d, b_score + kMaxWrites);
  hn::StoreU(b2, d, b_score + 2 * kMaxWrites);
  hn::StoreU(b3, d, b_score + 3 * kMaxWrites);
  hn::StoreU(r0, d, r_score);
  hn::StoreU(r1, d, r_score + kMaxWrites);
  hn::StoreU(r2, d, r_score + 2 * kMaxWrites);
  hn::StoreU(r3, d, r_score + 3 * kMaxWrites);
}

// Fills the scores of the chunk's n tokens and decays its writes to its end.
void Score(int64_t n, Work& work) {
  constexpr int64_t kTokens = 4;  // ScoreTokens writes four rows of scores
  static_assert(kMaxWrites / 2 % kTokens == 0, "the chunks of one and of two writes a token are whole fours of tokens");
  // Tokens that fill up the last four decay nothing.
  for (int64_t t = n; t % kTokens != 0; ++t) std::fill_n(work.w + t * work.key_stride, work.dim, 1.0f);
  for (int64_t first_write = 0; first_write < n * work.num_writes; first_write += PanelLanes()) {
    const int64_t first_token = first_write / work.num_writes;
    for (int64_t t = first_token - first_token % kTokens; t < n; t += kTokens) ScoreTokens(t, first_write, work);
  }
}

HWY_INLINE void MulAddRow(float x, PanelVector y0, PanelVector y1, PanelVector& sum0, PanelVector& sum1) {
  const PanelVector xs = hn::Set(PanelTag(), x);
  sum0 = hn::MulAdd(xs, y0, sum0);
  sum1 = hn::MulAdd(xs, y1, sum1);
}

HWY_INLINE void LoadScaled(const float* scale, int64_t row, const float* out, PanelVector& sum0, PanelVector& sum1) {
  if (scale == nullptr) return;
  const PanelVector factor = hn::Set(PanelTag(), scale[row]);
  sum0 = hn::Mul(factor, hn::LoadU(PanelTag(), out + row * PanelWidth()));
  sum1 = hn::Mul(factor, hn::LoadU(PanelTag(), out + row * PanelWidth() + PanelLanes()));
}

HWY_INLINE void StoreRow(PanelVector sum0, PanelVector sum1, int64_t row, float* out) {
  hn::StoreU(sum0, PanelTag(), out + row * PanelWidth());
  hn::StoreU(sum1, PanelTag(), out + row * PanelWidth() + PanelLanes());
}

// out = x·y, or diag(scale)·out + x·y where `scale` is not null, for panels y: [x.cols, PanelWidth()] and
// out: [x.rows, PanelWidth()]. Sums run in the order of x's columns, the same whatever other rows there are.
void Multiply(MatrixView<const float> x, const float* HWY_RESTRICT y, const float* scale, float* HWY_RESTRICT out) {
  const int64_t lanes = PanelLanes(), width = PanelWidth(), last = x.rows - 1;
  for (int64_t row = 0; row < x.rows; row += 4) {
    // A last group of fewer than four repeats its last row.
    const int64_t row1 = std::min(row + 1, last), row2 = std::min(row + 2, last), row3 = std::min(row + 3, last);
    const float* HWY_RESTRICT x0 = x.row(row);
    const float* HWY_RESTRICT x1 = x.row(row1);
    const float* HWY_RESTRICT x2 = x.row(row2);
    const float* HWY_RESTRICT x3 = x.row(row3);
    PanelVector a0 = hn::Zero(PanelTag()), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
    LoadScaled(scale, row, out, a0, b0);
    LoadScaled(scale, row1, out, a1, b1);
    LoadScaled(scale, row2, out, a2, b2);
    LoadScaled(scale, row3, out, a3, b3);
    for (int64_t i = 0; i < x.cols; ++i) {
      const PanelVector y0 = hn::LoadU(PanelTag(), y + i * width), y1 = hn::LoadU(PanelTag(), y + i * width + lanes);
      MulAddRow(x0[i], y0, y1, a0, b0);
      MulAddRow(x1[i], y0, y1, a1, b1);
      MulAddRow(x2[i], y0, y1, a2, b2);
      MulAddRow(x3[i], y0, y1, a3, b3);
    }
    StoreRow(a0, b0, row, out);
    StoreRow(a1, b1, row1, out);
    StoreRow(a2, b2, row2, out);
    StoreRow(a3, b3, row3, out);
  }
}

// Solves for u token by token and puts out o, for the value channels from `first` on.
void SolvePanel(MatrixView<const float> v, int64_t first, const Work& work, MatrixView<float> out) {
  const int64_t lanes = PanelLanes(), width = PanelWidth(), n = v.rows;
  const size_t count0 = static_cast<size_t>(std::min(lanes, v.cols - first));
  const size_t count1 = static_cast<size_t>(std::clamp<int64_t>(v.cols - first - lanes, 0, lanes));
  for (int64_t t = 0; t < n; ++t) {
    const int64_t write = t * work.num_writes;
    const PanelVector scale = hn::Set(PanelTag(), work.value_scale[t]);
    const PanelVector v0 = hn::Mul(scale, LoadFirst(PanelTag(), v.row(t) + first, count0));
    const PanelVector v1 =
        hn::Mul(scale, count1 == 0 ? hn::Zero(PanelTag()) : LoadFirst(PanelTag(), v.row(t) + first + lanes, count1));
    const float* const u_read = work.reads + t * width;
    const float* const o_read = work.reads + (n + t) * width;
    PanelVector u0 = hn::LoadU(PanelTag(), u_read), u1 = hn::LoadU(PanelTag(), u_read + lanes);
    PanelVector o0 = hn::LoadU(PanelTag(), o_read), o1 = hn::LoadU(PanelTag(), o_read + lanes);
    const float* HWY_RESTRICT b_score = work.b_score + t * kMaxWrites;
    const float* HWY_RESTRICT r_score = work.r_score + t * kMaxWrites;
    for (int64_t j = 0; j < write; ++j) {
      const PanelVector z0 = hn::LoadU(PanelTag(), work.write_values + j * width);
      const PanelVector z1 = hn::LoadU(PanelTag(), work.write_values + j * width + lanes);
      MulAddRow(b_score[j], z0, z1, u0, u1);
      MulAddRow(r_score[j], z0, z1, o0, o1);
    }
    if (work.num_writes == 1) {
      u0 = hn::Add(u0, v0);
      u1 = hn::Add(u1, v1);
    } else {
      StoreRow(v0, v1, write + 1, work.write_values);
      MulAddRow(r_score[write + 1], v0, v1, o0, o1);
    }
    StoreRow(u0, u1, write, work.write_values);
    MulAddRow(r_score[write], u0, u1, o0, o1);
    StoreFirst(o0, PanelTag(), out.row(t) + first, count0);
    if (count1 > 0) StoreFirst(o1, PanelTag(), out.row(t) + first + lanes, count1);
  }
}

template <typename Head>
void RunHead(const Head& head, int64_t n, int64_t dim, int64_t num_writes) {
  Work work(dim, head.v.cols, num_writes);
  LoadState(head.state, work);
  for (int64_t first = 0; first < n; first += work.chunk) {
    const int64_t count = std::min(work.chunk, n - first);
    for (int64_t t = 0; t < count; ++t) FillToken(head, first + t, t, work);
    TransposeWrites(count, work);
    DecayQueries(count, work);
    Score(count, work);
    const MatrixView<const float> queries(work.queries, 2 * count, dim, work.key_stride);
    const MatrixView<const float> writes(work.writes, dim, count * num_writes, kMaxWrites);
    for (int64_t panel = 0; panel < work.num_panels; ++panel) {
      float* const state = work.state + panel * dim * PanelWidth();
      Multiply(queries, state, nullptr, work.reads);
      SolvePanel(head.v.Rows(first, count), panel * PanelWidth(), work, head.out.Rows(first, count));
      Multiply(writes, work.write_values, work.decay, state);
    }
  }
  StoreState(work, head.state);
}

void Wkv7Impl(const Wkv7Head& head) { RunHead(head, head.r.rows, head.r.cols, 2); }
void DeltaRuleImpl(const DeltaRuleHead& head) { RunHead(head, head.q.rows, head.q.cols, 1); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvm {

HWY_EXPORT(Wkv7Impl);
HWY_EXPORT(DeltaRuleImpl);

void ChunkedWkv7(absl::Span<const Wkv7Head> heads, ThreadPool& pool) {
  for (const Wkv7Head& head : heads) CheckHead(head, CallSite::Here());
  const auto run = HWY_DYNAMIC_DISPATCH(Wkv7Impl);
  pool.ParallelFor(static_cast<int64_t>(heads.size()), [&](int64_t h) { run(heads[h]); });
}

void ChunkedDeltaRule(absl::Span<const DeltaRuleHead> heads, ThreadPool& pool) {
  for (const DeltaRuleHead& head : heads) CheckHead(head, CallSite::Here());
  const auto run = HWY_DYNAMIC_DISPATCH(DeltaRuleImpl);
  pool.ParallelFor(static_cast<int64_t>(heads.size()), [&](int64_t h) { run(heads[h]); });
}

}  // namespace kvm
#endif  // HWY_ONCE
