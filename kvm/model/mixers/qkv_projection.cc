#include "kvm/model/mixers/qkv_projection.h"

#include <algorithm>
#include <memory_resource>

#include "kvm/base/status_macros.h"
#include "kvm/kernels/cpu/pointwise/elementwise.h"
#include "kvm/kernels/cpu/pointwise/norms.h"
#include "kvm/kernels/cpu/pointwise/rotary.h"
#include "kvm/model/mixers/row_blocks.h"

namespace kvm {

void ShiftHistory::Export(std::vector<NamedTensor>* tensors) const {
  const auto add = [&](const char* name, const std::vector<float>& row) {
    if (row.empty()) return;
    tensors->push_back({name, Tensor::FromFloats({1, static_cast<int64_t>(row.size())}, row)});
  };
  add("att_q_final_token", q);
  add("att_k_final_token", k);
  add("att_v_final_token", v);
  add("att_x_final_token", x);
}

void ShiftHistory::Save(const StateWriter& out) const {
  out.Floats("q", q);
  out.Floats("k", k);
  out.Floats("v", v);
  out.Floats("x", x);
}

absl::Status ShiftHistory::Restore(const StateReader& in) {
  RETURN_IF_ERROR(in.Floats("q", absl::MakeSpan(q)));
  RETURN_IF_ERROR(in.Floats("k", absl::MakeSpan(k)));
  RETURN_IF_ERROR(in.Floats("v", absl::MakeSpan(v)));
  return in.Floats("x", absl::MakeSpan(x));
}

QkvProjection::QkvProjection(const ProjectionSpec& spec, int64_t width, StackSpec::TableType rotary_table,
                             const LayerWeights& weights)
    : QkvProjection(spec, width, weights) {
  rotary_table_ = rotary_table == StackSpec::BFLOAT16 ? DType::kBF16 : DType::kF32;
  rotary_frequencies_ = RotaryFrequencies(spec.rotary_dim(), spec.rotary_theta());
  ln_q_ = {weights.Vector("ln_q.weight"), weights.Vector("ln_q.bias")};
  ln_k_ = {weights.Vector("ln_k.weight"), weights.Vector("ln_k.bias")};
}

QkvProjection::QkvProjection(const ProjectionSpec& spec, int64_t width, const LayerWeights& weights)
    : heads_(ResolveHeads(spec, width)),
      width_(width),
      value_residual_(spec.value_residual()),
      token_shift_(spec.token_shift()),
      c_q_(weights.Matrix("c_q.weight")),
      c_k_(weights.Matrix("c_k.weight")),
      c_v_(weights.Matrix("c_v.weight")),
      c_proj_(weights.Matrix("c_proj.weight")) {
  if (token_shift_) {
    x_q_ = weights.Vector("x_q");
    x_k_ = weights.Vector("x_k");
    x_v_ = weights.Vector("x_v");
  }
  if (value_residual_ == ProjectionSpec::LINEAR) lamb_ = weights.Vector("lamb")[0];
  if (value_residual_ == ProjectionSpec::RWKV || value_residual_ == ProjectionSpec::RWKV_POST_TOKEN_SHIFT) {
    v_gate0_ = weights.Vector("v_gate0");
    v_gate1_ = weights.Matrix("v_gate1.weight");
    v_gate2_ = weights.Matrix("v_gate2.weight");
  }
  if (value_residual_ == ProjectionSpec::RWKV_POST_TOKEN_SHIFT) {
    x_gate_ = v_width() == width ? weights.Vector("x_v") : weights.Vector("x_v_hidden");
  }
}

ShiftHistory QkvProjection::NewHistory() const {
  ShiftHistory history;
  if (token_shift_) {
    history.q.resize(q_width());
    history.k.resize(k_width());
    history.v.resize(v_width());
  }
  if (token_shift_ || value_residual_ == ProjectionSpec::RWKV_POST_TOKEN_SHIFT) history.x.resize(width_);
  return history;
}

void QkvProjection::Project(MatrixView<const float> x, MatrixView<const float> anchor,
                            absl::Span<const ProjectionRows> sequences, MatrixView<float> q, MatrixView<float> k,
                            MatrixView<float> v, ExecutionContext& context) const {
  const Scratch::Scope scope(context.scratch);
  const int64_t n = x.rows;
  // The token shift reads the row before, so it cannot work in place: project into `raw` and shift into q, k, v.
  const auto raw = [&](MatrixView<float> shifted) {
    return token_shift_ ? context.scratch.Matrix(n, shifted.cols) : shifted;
  };
  const MatrixView<float> raw_q = raw(q), raw_k = raw(k), raw_v = raw(v);
  MatMul(x, c_q_, raw_q, context.pool);
  MatMul(x, c_k_, raw_k, context.pool);
  MatMul(x, c_v_, raw_v, context.pool);

  if (value_residual_ == ProjectionSpec::RWKV) GatedValueResidual(x, anchor, raw_v, context);
  if (value_residual_ == ProjectionSpec::LINEAR) {
    ForRowBlocks(context.pool, n, [&](int64_t begin, int64_t count) {
      Blend(raw_v.Rows(begin, count), 1 - lamb_, lamb_, anchor.Rows(begin, count));
    });
  }
  if (token_shift_) {
    Shift(raw_q, sequences, &ShiftHistory::q, x_q_, q, context);
    Shift(raw_k, sequences, &ShiftHistory::k, x_k_, k, context);
    Shift(raw_v, sequences, &ShiftHistory::v, x_v_, v, context);
  }
  if (value_residual_ == ProjectionSpec::RWKV_POST_TOKEN_SHIFT) {
    const MatrixView<float> shifted = context.scratch.Matrix(n, width_);
    Shift(x, sequences, &ShiftHistory::x, x_gate_, shifted, context);
    GatedValueResidual(shifted, anchor, v, context);
  }
  for (const ProjectionRows& s : sequences) {
    const float* const last = x.row(s.first_row + s.num_tokens - 1);
    if (!s.history->x.empty()) std::copy(last, last + width_, s.history->x.begin());
  }
  if (!ln_q_.weight.empty()) NormalizeAndRotate(sequences, q, k, context);
}

void QkvProjection::GatedValueResidual(MatrixView<const float> x, MatrixView<const float> anchor, MatrixView<float> v,
                                       ExecutionContext& context) const {
  const Scratch::Scope scope(context.scratch);
  const MatrixView<float> low_rank = context.scratch.Matrix(x.rows, v_gate1_.outputs());
  const MatrixView<float> gate = context.scratch.Matrix(x.rows, v_width());
  MatMul(x, v_gate1_, low_rank, context.pool);
  MatMul(low_rank, v_gate2_, gate, context.pool);
  ForRowBlocks(context.pool, x.rows, [&](int64_t begin, int64_t count) {
    SigmoidBlend(v.Rows(begin, count), anchor.Rows(begin, count), v_gate0_, gate.Rows(begin, count));
  });
}

void QkvProjection::Shift(MatrixView<const float> x, absl::Span<const ProjectionRows> sequences,
                          std::vector<float> ShiftHistory::*history, absl::Span<const float> mix, MatrixView<float> out,
                          ExecutionContext& context) const {
  std::pmr::vector<ShiftRows> rows(context.pool.memory());
  rows.reserve(sequences.size());
  for (const ProjectionRows& s : sequences) {
    // A sequence's first token has itself as the token before.
    const absl::Span<const float> previous = s.position == 0 ? x.row_span(s.first_row) : s.history->*history;
    rows.push_back({s.first_row, s.num_tokens, previous});
  }
  ShiftSequences(x, rows, mix, out, context.pool);
  for (const ProjectionRows& s : sequences) {
    const float* const last = x.row(s.first_row + s.num_tokens - 1);
    std::copy(last, last + x.cols, (s.history->*history).begin());
  }
}

void QkvProjection::NormalizeAndRotate(absl::Span<const ProjectionRows> sequences, MatrixView<float> q,
                                       MatrixView<float> k, ExecutionContext& context) const {
  const Scratch::Scope scope(context.scratch);
  const int64_t pairs = static_cast<int64_t>(rotary_frequencies_.size());
  const MatrixView<float> cos = context.scratch.Matrix(q.rows, pairs);
  const MatrixView<float> sin = context.scratch.Matrix(q.rows, pairs);
  for (const ProjectionRows& s : sequences) {
    ForRowBlocks(context.pool, s.num_tokens, [&](int64_t begin, int64_t count) {
      const int64_t row = s.first_row + begin;
      const MatrixView<float> block_q = q.Rows(row, count), block_k = k.Rows(row, count);
      HeadLayerNorm(block_q, ln_q_.weight, ln_q_.bias, kLayerNormEpsilon, block_q);
      HeadLayerNorm(block_k, ln_k_.weight, ln_k_.bias, kLayerNormEpsilon, block_k);
      if (pairs == 0) return;
      const MatrixView<float> block_cos = cos.Rows(row, count), block_sin = sin.Rows(row, count);
      RotaryTable(rotary_frequencies_, s.position + begin, rotary_table_, block_cos, block_sin);
      ApplyRotary(block_q, heads_.qk_dim, block_cos, block_sin);
      ApplyRotary(block_k, heads_.qk_dim, block_cos, block_sin);
    });
  }
}

void QkvProjection::AnchorValues(MatrixView<const float> x0, MatrixView<float> out, ExecutionContext& context) const {
  MatMul(x0, c_v_, out, context.pool);
}

void QkvProjection::Output(MatrixView<const float> attended, MatrixView<float> out, ExecutionContext& context) const {
  MatMul(attended, c_proj_, out, context.pool);
}

int64_t QkvProjection::WeightByteSize() const {
  int64_t bytes = 0;
  for (const PackedMatrix* m : {&c_q_, &c_k_, &c_v_, &c_proj_, &v_gate1_, &v_gate2_}) bytes += m->byte_size();
  return bytes;
}

}  // namespace kvm
