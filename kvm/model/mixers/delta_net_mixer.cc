#include "kvm/model/mixers/delta_net_mixer.h"

#include <algorithm>
#include <cmath>
#include <memory_resource>
#include <string>
#include <utility>
#include <vector>

#include "kvm/kernels/cpu/matmul.h"
#include "kvm/kernels/cpu/pointwise/elementwise.h"
#include "kvm/kernels/cpu/recurrence/chunked_delta.h"
#include "kvm/kernels/cpu/recurrence/delta_gates.h"
#include "kvm/kernels/cpu/recurrence/delta_rule.h"
#include "kvm/kernels/cpu/recurrence/short_convolution.h"
#include "kvm/model/mixers/delta_net_state.h"
#include "kvm/model/mixers/row_blocks.h"
#include "kvm/model/stack/delta_net_spec.h"

namespace kvm {
namespace {

// exp(A_log) of each value head, `repeat` times.
std::vector<float> DecayRates(const std::vector<float>& a_log, int64_t repeat) {
  std::vector<float> rates;
  for (const float a : a_log) rates.insert(rates.end(), repeat, std::exp(a));
  return rates;
}

// How the state decays and what the normed output is multiplied by.
class Gates {
 public:
  virtual ~Gates() = default;

  // Columns of Decays: one a value head, or one a key channel of every value head.
  virtual int64_t decay_width() const = 0;
  virtual bool has_output_gate() const = 0;
  // out [n, decay_width()]: decays in [0, 1] from the layer's input x [n, D].
  virtual void Decays(MatrixView<const float> x, MatrixView<float> out, ExecutionContext& context) const = 0;
  // out [n, HV·V].
  virtual void OutputGate(MatrixView<const float> x, MatrixView<float> out, ExecutionContext& context) const = 0;
  virtual int64_t byte_size() const = 0;
};

class GatedDeltaNetGates : public Gates {
 public:
  GatedDeltaNetGates(const GatedDeltaNetSpec& spec, const LayerWeights& weights)
      : a_proj_(weights.Matrix("a_proj.weight")),
        rates_(DecayRates(weights.Vector("A_log"), 1)),
        dt_bias_(weights.Vector("dt_bias")) {
    if (spec.output_gate()) g_proj_ = weights.Matrix("g_proj.weight");
  }

  int64_t decay_width() const override { return a_proj_.outputs(); }
  bool has_output_gate() const override { return g_proj_.outputs() > 0; }

  void Decays(MatrixView<const float> x, MatrixView<float> out, ExecutionContext& context) const override {
    MatMul(x, a_proj_, out, context.pool);
    ForRowBlocks(context.pool, x.rows,
                 [&](int64_t begin, int64_t count) { SoftplusDecay(out.Rows(begin, count), rates_, dt_bias_); });
  }

  void OutputGate(MatrixView<const float> x, MatrixView<float> out, ExecutionContext& context) const override {
    MatMul(x, g_proj_, out, context.pool);
    ForRowBlocks(context.pool, x.rows, [&](int64_t begin, int64_t count) { Silu(out.Rows(begin, count)); });
  }

  int64_t byte_size() const override { return a_proj_.byte_size() + g_proj_.byte_size(); }

 private:
  PackedMatrix a_proj_, g_proj_;
  std::vector<float> rates_;
  WeightVector dt_bias_;
};

class KimiDeltaGates : public Gates {
 public:
  KimiDeltaGates(const KimiDeltaSpec& spec, const LayerWeights& weights)
      : lower_bound_(static_cast<float>(spec.decay_lower_bound())),
        f_down_(weights.Matrix("f_proj.0.weight")),
        f_up_(weights.Matrix("f_proj.1.weight")),
        g_down_(weights.Matrix("g_proj.0.weight")),
        g_up_(weights.Matrix("g_proj.1.weight")),
        dt_bias_(weights.Vector("dt_bias")),
        g_bias_(weights.Vector("g_proj.1.bias")) {
    const std::vector<float> a_log = weights.Vector("A_log");
    rates_ = DecayRates(a_log, f_up_.outputs() / static_cast<int64_t>(a_log.size()));
  }

  int64_t decay_width() const override { return f_up_.outputs(); }
  bool has_output_gate() const override { return true; }

  void Decays(MatrixView<const float> x, MatrixView<float> out, ExecutionContext& context) const override {
    LowRank(x, f_down_, f_up_, out, context);
    ForRowBlocks(context.pool, x.rows, [&](int64_t begin, int64_t count) {
      if (lower_bound_ < 0) {
        BoundedDecay(out.Rows(begin, count), rates_, dt_bias_, lower_bound_);
      } else {
        SoftplusDecay(out.Rows(begin, count), rates_, dt_bias_);
      }
    });
  }

  void OutputGate(MatrixView<const float> x, MatrixView<float> out, ExecutionContext& context) const override {
    LowRank(x, g_down_, g_up_, out, context);
    ForRowBlocks(context.pool, x.rows,
                 [&](int64_t begin, int64_t count) { BiasedSigmoid(out.Rows(begin, count), g_bias_); });
  }

  int64_t byte_size() const override {
    return f_down_.byte_size() + f_up_.byte_size() + g_down_.byte_size() + g_up_.byte_size();
  }

 private:
  // out = up·down·x.
  static void LowRank(MatrixView<const float> x, const PackedMatrix& down, const PackedMatrix& up,
                      MatrixView<float> out, ExecutionContext& context) {
    const Scratch::Scope scope(context.scratch);
    const MatrixView<float> inner = context.scratch.Matrix(x.rows, down.outputs());
    MatMul(x, down, inner, context.pool);
    MatMul(inner, up, out, context.pool);
  }

  float lower_bound_;  // 0 for none
  PackedMatrix f_down_, f_up_, g_down_, g_up_;
  std::vector<float> rates_;
  WeightVector dt_bias_, g_bias_;
};

// A projection, its short convolution if there is one, and SiLU.
class ConvolvedProjection {
 public:
  ConvolvedProjection(const DeltaNetSpec& spec, const LayerWeights& weights, const std::string& name)
      : projection_(weights.Matrix(name + "_proj.weight")), size_(spec.conv_size) {
    if (size_ == 0) return;
    // [channels, 1, size] in files.
    const std::vector<float> filters = weights.Vector(name + "_conv1d.weight");
    taps_.resize(filters.size());
    for (size_t i = 0; i < filters.size(); ++i) taps_[i % size_ * channels() + i / size_] = filters[i];
    if (spec.conv_bias) bias_ = weights.Vector(name + "_conv1d.bias");
  }

  int64_t channels() const { return projection_.outputs(); }
  int64_t byte_size() const { return projection_.byte_size(); }

  void Project(MatrixView<const float> x, MatrixView<float> out, ThreadPool& pool) const {
    MatMul(x, projection_, out, pool);
  }

  // out [n, channels]. `history` is each sequence's.
  void Apply(MatrixView<const float> x, absl::Span<const SequenceRows> sequences,
             ConvolutionHistory DeltaNetState::*history, MatrixView<float> out, ExecutionContext& context) const {
    if (size_ == 0) {
      Project(x, out, context.pool);
      ForRowBlocks(context.pool, x.rows, [&](int64_t begin, int64_t count) { Silu(out.Rows(begin, count)); });
      return;
    }
    const Scratch::Scope scope(context.scratch);
    const MatrixView<float> raw = context.scratch.Matrix(x.rows, channels());
    Project(x, raw, context.pool);

    struct Block {
      const SequenceRows* sequence;
      int64_t begin, count;  // among the sequence's rows
    };
    std::pmr::vector<Block> blocks(context.pool.memory());
    for (const SequenceRows& s : sequences) {
      for (int64_t begin = 0; begin < s.num_tokens; begin += kRowBlock) {
        blocks.push_back({&s, begin, std::min(kRowBlock, s.num_tokens - begin)});
      }
    }
    const auto history_of = [&](const SequenceRows& s) {
      return (static_cast<DeltaNetState*>(s.state)->*history).view();
    };
    const ConvolutionTaps taps = {{taps_.data(), size_, channels()}, bias_};
    context.pool.ParallelFor(static_cast<int64_t>(blocks.size()), [&](int64_t i) {
      const Block& b = blocks[i];
      ShortConvolution(raw.Rows(b.sequence->first_row, b.sequence->num_tokens), b.begin, b.count,
                       history_of(*b.sequence), taps, out.Rows(b.sequence->first_row + b.begin, b.count));
    });
    for (const SequenceRows& s : sequences) AdvanceHistory(raw.Rows(s.first_row, s.num_tokens), history_of(s));
  }

 private:
  PackedMatrix projection_;
  int64_t size_;             // 0: no convolution
  std::vector<float> taps_;  // [size, channels]
  WeightVector bias_;        // [channels] or empty
};

class DeltaNetMixer : public Mixer {
 public:
  DeltaNetMixer(const DeltaNetSpec& spec, std::unique_ptr<Gates> gates, const LayerWeights& weights, bool chunked)
      : spec_(spec),
        chunked_(chunked),
        gates_(std::move(gates)),
        q_(spec, weights, "q"),
        k_(spec, weights, "k"),
        v_(spec, weights, "v"),
        b_proj_(weights.Matrix("b_proj.weight")),
        o_proj_(weights.Matrix("o_proj.weight")),
        o_norm_(weights.Vector("o_norm.weight")) {}

  std::unique_ptr<MixerState> NewState() const override { return std::make_unique<DeltaNetState>(spec_); }
  void Extend(MatrixView<const float> x, MatrixView<const float> anchor, absl::Span<const SequenceRows> sequences,
              MatrixView<float> out, ExecutionContext& context) const override;
  void AnchorValues(MatrixView<const float> x0, absl::Span<const AnchorRows> sequences, MatrixView<float> out,
                    ExecutionContext& context) const override;
  int64_t value_width() const override { return spec_.value_width(); }
  int64_t WeightByteSize() const override {
    return q_.byte_size() + k_.byte_size() + v_.byte_size() + b_proj_.byte_size() + o_proj_.byte_size() +
           gates_->byte_size();
  }

 private:
  DeltaNetSpec spec_;
  bool chunked_;
  std::unique_ptr<Gates> gates_;
  ConvolvedProjection q_, k_, v_;
  PackedMatrix b_proj_, o_proj_;
  WeightVector o_norm_;
};

void DeltaNetMixer::Extend(MatrixView<const float> x, MatrixView<const float> /*anchor*/,
                           absl::Span<const SequenceRows> sequences, MatrixView<float> out,
                           ExecutionContext& context) const {
  const Scratch::Scope scope(context.scratch);
  const int64_t n = x.rows;
  const MatrixView<float> q = context.scratch.Matrix(n, q_.channels()), k = context.scratch.Matrix(n, k_.channels());
  const MatrixView<float> v = context.scratch.Matrix(n, v_.channels()), mixed = context.scratch.Matrix(n, v.cols);
  const MatrixView<float> beta = context.scratch.Matrix(n, spec_.num_value_heads);
  const MatrixView<float> decay = context.scratch.Matrix(n, gates_->decay_width());
  q_.Apply(x, sequences, &DeltaNetState::conv_q, q, context);
  k_.Apply(x, sequences, &DeltaNetState::conv_k, k, context);
  v_.Apply(x, sequences, &DeltaNetState::conv_v, v, context);
  MatMul(x, b_proj_, beta, context.pool);
  gates_->Decays(x, decay, context);

  const float query_scale = 1.0f / std::sqrt(static_cast<float>(spec_.qk_dim));
  ForRowBlocks(context.pool, n, [&](int64_t begin, int64_t count) {
    DeltaUnitLength(q.Rows(begin, count), spec_.qk_dim, query_scale);
    DeltaUnitLength(k.Rows(begin, count), spec_.qk_dim, 1.0f);
    ScaledSigmoid(beta.Rows(begin, count), spec_.allow_negative_eigenvalues ? 2.0f : 1.0f);
  });

  const int64_t group = spec_.num_value_heads / spec_.num_heads;
  const int64_t decays = decay.cols / spec_.num_value_heads;  // of one head
  std::pmr::vector<DeltaRuleHead> stepped(context.pool.memory()), chunked(context.pool.memory());
  for (const SequenceRows& s : sequences) {
    std::pmr::vector<DeltaRuleHead>& heads = chunked_ && s.num_tokens >= kMinChunkedTokens ? chunked : stepped;
    float* state = static_cast<DeltaNetState*>(s.state)->recurrent.floats().data();
    for (int64_t h = 0; h < spec_.num_value_heads; ++h, state += spec_.qk_dim * spec_.v_dim) {
      const auto columns = [&](MatrixView<float> m, int64_t head, int64_t dim) {
        return m.Rows(s.first_row, s.num_tokens).Cols(head * dim, dim);
      };
      heads.push_back({columns(q, h / group, spec_.qk_dim), columns(k, h / group, spec_.qk_dim),
                       columns(v, h, spec_.v_dim), columns(decay, h, decays), columns(beta, h, 1), state,
                       columns(mixed, h, spec_.v_dim)});
    }
  }
  DeltaRule(stepped, context.pool);
  ChunkedDeltaRule(chunked, context.pool);

  MatrixView<float> gate;
  if (gates_->has_output_gate()) {
    gate = v;  // which has been read
    gates_->OutputGate(x, gate, context);
  }
  ForRowBlocks(context.pool, n, [&](int64_t begin, int64_t count) {
    GatedRmsNorm(mixed.Rows(begin, count), o_norm_, static_cast<float>(spec_.norm_epsilon),
                 gates_->has_output_gate() ? gate.Rows(begin, count) : MatrixView<float>());
  });
  MatMul(mixed, o_proj_, out, context.pool);
}

void DeltaNetMixer::AnchorValues(MatrixView<const float> x0, absl::Span<const AnchorRows> /*sequences*/,
                                 MatrixView<float> out, ExecutionContext& context) const {
  v_.Project(x0, out, context.pool);
}

}  // namespace

std::unique_ptr<Mixer> NewGatedDeltaNetMixer(const GatedDeltaNetSpec& spec, int64_t width, const LayerWeights& weights,
                                             bool chunked) {
  return std::make_unique<DeltaNetMixer>(ResolveDeltaNet(spec, width),
                                         std::make_unique<GatedDeltaNetGates>(spec, weights), weights, chunked);
}

std::unique_ptr<Mixer> NewKimiDeltaMixer(const KimiDeltaSpec& spec, int64_t width, const LayerWeights& weights,
                                         bool chunked) {
  return std::make_unique<DeltaNetMixer>(ResolveDeltaNet(spec, width), std::make_unique<KimiDeltaGates>(spec, weights),
                                         weights, chunked);
}

}  // namespace kvm
