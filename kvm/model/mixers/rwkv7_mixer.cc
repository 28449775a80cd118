#include "kvm/model/mixers/rwkv7_mixer.h"

#include <algorithm>
#include <memory_resource>
#include <utility>
#include <vector>

#include "kvm/base/status_macros.h"
#include "kvm/kernels/cpu/pointwise/elementwise.h"
#include "kvm/kernels/cpu/pointwise/norms.h"
#include "kvm/kernels/cpu/recurrence/chunked_delta.h"
#include "kvm/kernels/cpu/recurrence/wkv7.h"
#include "kvm/model/mixers/row_blocks.h"

namespace kvm {
namespace {

constexpr float kGroupNormEpsilon = 64e-5f;

class Rwkv7State : public MixerState {
 public:
  Rwkv7State(int64_t width, int64_t num_heads, int64_t head_dim)
      : shift(width), matrices(DType::kF32, {num_heads, head_dim, head_dim}) {}

  std::unique_ptr<MixerState> Clone() const override {
    auto copy = std::make_unique<Rwkv7State>(0, 0, 0);
    copy->shift = shift;
    copy->matrices = matrices.Clone();
    return copy;
  }
  int64_t ByteSize() const override {
    return static_cast<int64_t>(shift.size() * sizeof(float)) + matrices.byte_size();
  }
  // "shift" [D], "matrices" [H, d (key), d (value)].
  void Save(const StateWriter& out) const override {
    out.Floats("shift", shift);
    out.Tensor("matrices", matrices.dtype(), matrices.shape(), matrices.bytes());
  }
  absl::Status Restore(const StateReader& in, int64_t) override {
    RETURN_IF_ERROR(in.Floats("shift", absl::MakeSpan(shift)));
    return in.Tensor("matrices", matrices.dtype(), matrices.shape(), matrices.bytes());
  }
  // rwkv7_time_mix [H, d (key), d (value)], att_final_token [1, D].
  std::vector<NamedTensor> Export() const override {
    std::vector<NamedTensor> tensors;
    tensors.push_back({"rwkv7_time_mix", matrices.Clone()});
    tensors.push_back({"att_final_token", Tensor::FromFloats({1, static_cast<int64_t>(shift.size())}, shift)});
    return tensors;
  }

  std::vector<float> shift;  // the mixer's last input [D]; zeros at the start
  Tensor matrices;           // S of every head
};

// bias + up·activation(down·x), the low-rank form of decay, in-context rate, value gate and output gate.
struct LowRank {
  LowRank(const LayerWeights& weights, const std::string& down, const std::string& up)
      : down(weights.Matrix(down + ".weight")), up(weights.Matrix(up + ".weight")) {}

  using Activation = void (*)(MatrixView<float>);
  void Apply(MatrixView<const float> x, Activation activation, MatrixView<float> out, ExecutionContext& context) const {
    const Scratch::Scope scope(context.scratch);
    const MatrixView<float> inner = context.scratch.Matrix(x.rows, down.outputs());
    MatMul(x, down, inner, context.pool);
    if (activation != nullptr) {
      ForRowBlocks(context.pool, x.rows, [&](int64_t begin, int64_t count) { activation(inner.Rows(begin, count)); });
    }
    MatMul(inner, up, out, context.pool);
  }
  int64_t byte_size() const { return down.byte_size() + up.byte_size(); }

  PackedMatrix down, up;
};

class Rwkv7Mixer : public Mixer {
 public:
  Rwkv7Mixer(const Rwkv7Spec& spec, int64_t width, const LayerWeights& weights, bool chunked);

  std::unique_ptr<MixerState> NewState() const override {
    return std::make_unique<Rwkv7State>(width_, num_heads_, head_dim_);
  }
  void Extend(MatrixView<const float> x, MatrixView<const float> anchor, absl::Span<const SequenceRows> sequences,
              MatrixView<float> out, ExecutionContext& context) const override;
  void AnchorValues(MatrixView<const float> x0, absl::Span<const AnchorRows> sequences, MatrixView<float> out,
                    ExecutionContext& context) const override;
  int64_t value_width() const override { return width_; }
  bool anchor_shifts() const override { return token_shift_; }
  int64_t WeightByteSize() const override;

 private:
  int64_t width_;
  int64_t num_heads_;
  int64_t head_dim_;
  bool token_shift_;
  bool chunked_;
  WeightVector x_r_, x_w_, x_k_, x_v_, x_a_, x_g_;
  WeightVector w0_, a0_, v0_, k_k_, k_a_, r_k_, ln_x_weight_, ln_x_bias_;
  LowRank decay_, in_context_rate_, value_gate_, gate_;
  PackedMatrix receptance_, key_, value_, output_;
};

Rwkv7Mixer::Rwkv7Mixer(const Rwkv7Spec& spec, int64_t width, const LayerWeights& weights, bool chunked)
    : width_(width),
      num_heads_(spec.num_heads()),
      head_dim_(width / spec.num_heads()),
      token_shift_(spec.token_shift()),
      chunked_(chunked),
      w0_(weights.Vector("w0")),
      a0_(weights.Vector("a0")),
      v0_(weights.Vector("v0")),
      k_k_(weights.Vector("k_k")),
      k_a_(weights.Vector("k_a")),
      r_k_(weights.Vector("r_k")),
      ln_x_weight_(weights.Vector("ln_x.weight")),
      ln_x_bias_(weights.Vector("ln_x.bias")),
      decay_(weights, "w1", "w2"),
      in_context_rate_(weights, "a1", "a2"),
      value_gate_(weights, "v1", "v2"),
      gate_(weights, "g1", "g2"),
      receptance_(weights.Matrix("receptance.weight")),
      key_(weights.Matrix("key.weight")),
      value_(weights.Matrix("value.weight")),
      output_(weights.Matrix("output.weight")) {
  if (!token_shift_) return;
  x_r_ = weights.Vector("x_r");
  x_w_ = weights.Vector("x_w");
  x_k_ = weights.Vector("x_k");
  x_v_ = weights.Vector("x_v");
  x_a_ = weights.Vector("x_a");
  x_g_ = weights.Vector("x_g");
}

void Rwkv7Mixer::Extend(MatrixView<const float> x, MatrixView<const float> anchor,
                        absl::Span<const SequenceRows> sequences, MatrixView<float> out,
                        ExecutionContext& context) const {
  const Scratch::Scope scope(context.scratch);
  const int64_t n = x.rows;
  const auto matrix = [&] { return context.scratch.Matrix(n, width_); };
  const MatrixView<float> r = matrix(), w = matrix(), k = matrix(), v = matrix(), a = matrix(), g = matrix(),
                          kappa = matrix(), mixed_rows = matrix(), value_gate = matrix(), mixed = matrix();

  std::pmr::vector<ShiftRows> shifts(context.pool.memory());
  for (const SequenceRows& s : sequences) {
    shifts.push_back({s.first_row, s.num_tokens, static_cast<Rwkv7State*>(s.state)->shift});
  }
  const auto shift = [&](absl::Span<const float> mix) -> MatrixView<const float> {
    if (!token_shift_) return x;
    ShiftSequences(x, shifts, mix, mixed_rows, context.pool);
    return mixed_rows;
  };
  MatMul(shift(x_r_), receptance_, r, context.pool);
  decay_.Apply(shift(x_w_), Tanh, w, context);
  MatMul(shift(x_k_), key_, k, context.pool);
  const MatrixView<const float> x_v = shift(x_v_);
  MatMul(x_v, value_, v, context.pool);
  value_gate_.Apply(x_v, nullptr, value_gate, context);
  in_context_rate_.Apply(shift(x_a_), nullptr, a, context);
  gate_.Apply(shift(x_g_), Sigmoid, g, context);

  ForRowBlocks(context.pool, n, [&](int64_t begin, int64_t count) {
    const auto rows = [&](MatrixView<float> m) { return m.Rows(begin, count); };
    Rwkv7Decay(rows(w), w0_);
    SigmoidBlend(rows(v), anchor.Rows(begin, count), v0_, rows(value_gate));
    BiasedSigmoid(rows(a), a0_);
    Wkv7Keys(rows(k), rows(a), k_k_, k_a_, head_dim_, rows(kappa));
  });

  std::pmr::vector<Wkv7Head> stepped(context.pool.memory()), chunked(context.pool.memory());
  for (const SequenceRows& s : sequences) {
    Rwkv7State& state = *static_cast<Rwkv7State*>(s.state);
    std::pmr::vector<Wkv7Head>& heads = chunked_ && s.num_tokens >= kMinChunkedTokens ? chunked : stepped;
    for (int64_t h = 0; h < num_heads_; ++h) {
      const auto head = [&](MatrixView<float> m) {
        return m.Rows(s.first_row, s.num_tokens).Cols(h * head_dim_, head_dim_);
      };
      heads.push_back({head(r), head(w), head(k), head(v), head(kappa), head(a),
                       state.matrices.floats().data() + h * head_dim_ * head_dim_, head(mixed)});
    }
    const float* const last = x.row(s.first_row + s.num_tokens - 1);
    std::copy(last, last + width_, state.shift.begin());
  }
  Wkv7(stepped, context.pool);
  ChunkedWkv7(chunked, context.pool);

  ForRowBlocks(context.pool, n, [&](int64_t begin, int64_t count) {
    const auto rows = [&](MatrixView<float> m) { return m.Rows(begin, count); };
    GroupNorm(rows(mixed), num_heads_, ln_x_weight_, ln_x_bias_, kGroupNormEpsilon, rows(mixed));
    Wkv7BonusAndGate(rows(mixed), rows(r), rows(k), rows(v), r_k_, head_dim_, rows(g));
  });
  MatMul(mixed, output_, out, context.pool);
}

void Rwkv7Mixer::AnchorValues(MatrixView<const float> x0, absl::Span<const AnchorRows> sequences, MatrixView<float> out,
                              ExecutionContext& context) const {
  if (!token_shift_) return MatMul(x0, value_, out, context.pool);
  const Scratch::Scope scope(context.scratch);
  const MatrixView<float> shifted = context.scratch.Matrix(x0.rows, width_);
  std::pmr::vector<ShiftRows> shifts(context.pool.memory());
  for (const AnchorRows& s : sequences) shifts.push_back({s.first_row, s.num_tokens, *s.shift});
  ShiftSequences(x0, shifts, x_v_, shifted, context.pool);
  for (const AnchorRows& s : sequences) {
    const float* const last = x0.row(s.first_row + s.num_tokens - 1);
    std::copy(last, last + width_, s.shift->begin());
  }
  MatMul(shifted, value_, out, context.pool);
}

int64_t Rwkv7Mixer::WeightByteSize() const {
  int64_t bytes = 0;
  for (const PackedMatrix* m : {&receptance_, &key_, &value_, &output_}) bytes += m->byte_size();
  for (const LowRank* m : {&decay_, &in_context_rate_, &value_gate_, &gate_}) bytes += m->byte_size();
  return bytes;
}

}  // namespace

std::unique_ptr<Mixer> NewRwkv7Mixer(const Rwkv7Spec& spec, int64_t width, const LayerWeights& weights, bool chunked) {
  return std::make_unique<Rwkv7Mixer>(spec, width, weights, chunked);
}

}  // namespace kvm
