#include "kvm/model/cpu/cpu_engine.h"

#include <algorithm>
#include <memory_resource>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvm/base/status_macros.h"
#include "kvm/kernels/cpu/matmul.h"
#include "kvm/kernels/cpu/pointwise/elementwise.h"
#include "kvm/kernels/cpu/pointwise/norms.h"
#include "kvm/model/cpu/token_embedding.h"
#include "kvm/model/engine/state_size.h"
#include "kvm/model/mixers/mixer.h"
#include "kvm/model/mixers/new_mixer.h"
#include "kvm/model/mixers/row_blocks.h"
#include "kvm/model/stack/builtin_kinds.h"
#include "kvm/model/stack/mixer_kind.h"
#include "kvm/model/weights/layer_weights.h"
#include "kvm/model/weights/quantized_weights.h"
#include "kvm/state/host_layer_state.h"

namespace kvm {
namespace {

// Bounds working memory. Results do not depend on it.
constexpr int64_t kMaxPassRows = 512;

struct LayerNormWeights {
  LayerNormWeights() = default;
  LayerNormWeights(const LayerWeights& weights, const std::string& name)
      : weight(weights.Vector(name + ".weight")), bias(weights.Vector(name + ".bias")) {}

  void Apply(MatrixView<const float> x, MatrixView<float> out, ThreadPool& pool) const {
    ForRowBlocks(pool, x.rows, [&](int64_t begin, int64_t count) {
      LayerNorm(x.Rows(begin, count), weight, bias, kLayerNormEpsilon, out.Rows(begin, count));
    });
  }

  WeightVector weight, bias;
};

struct Layer {
  LayerNormWeights ln_attn, ln_mlp;
  std::unique_ptr<Mixer> mixer;
  PackedMatrix c_fc, c_proj;
  WeightVector mlp_x_k;
  WeightVector lambdas;  // two, or empty
};

class CpuEngine : public Engine {
 public:
  CpuEngine(const StackPlan& plan, const WeightSource& weights, const ModelOptions& options);

  absl::string_view arithmetic() const override { return "cpu"; }
  int64_t max_pass_rows() const override { return kMaxPassRows; }
  SequenceState NewSequence() const override;
  absl::Status Prepare(absl::Span<const PassRows> pass, ExecutionContext& context) const override;
  absl::Status Forward(absl::Span<const PassRows> pass, const PassObserver* observer,
                       ExecutionContext& context) const override;
  int64_t WeightByteSize() const override;
  int64_t StepWeightByteSize() const override;
  StateSize SizeOf(int64_t context_length) const override {
    return SequenceStateSize(spec(), state_, context_length, provenance_, kinds_);
  }

 private:
  const StackSpec& spec() const { return plan_.spec; }
  int64_t width() const { return spec().width(); }

  void Anchor(absl::Span<const PassRows> pass, int layer, MatrixView<const float> x0, MatrixView<float> out,
              ExecutionContext& context) const;
  void Mix(absl::Span<const PassRows> pass, int64_t layer, MatrixView<const float> anchor, MatrixView<float> x,
           ExecutionContext& context) const;
  void Mlp(absl::Span<const PassRows> pass, int64_t layer, MatrixView<float> x, ExecutionContext& context) const;
  void Logits(absl::Span<const PassRows> pass, MatrixView<const float> x, ExecutionContext& context) const;

  std::shared_ptr<const void> weights_memory_;  // first, as it must outlive all that borrows from it
  StackPlan plan_;
  MixerKinds kinds_;
  DType state_;
  bool provenance_;
  TokenEmbedding embedding_;
  LayerNormWeights ln_emb_, ln_head_;
  PackedMatrix head_;
  std::vector<Layer> layers_;
  WeightVector skip_weights_;
};

CpuEngine::CpuEngine(const StackPlan& plan, const WeightSource& weights, const ModelOptions& options)
    : weights_memory_(weights.Memory()),
      plan_(plan),
      kinds_(KindsOf(options)),
      state_(options.state),
      provenance_(options.provenance) {
  const LayerWeights stack(weights, "transformer.", options.weights);
  const LayerWeights root(weights, "", options.weights);
  embedding_ = TokenEmbedding(weights, options.weights);
  ln_emb_ = LayerNormWeights(stack, "ln_emb");
  ln_head_ = LayerNormWeights(stack, "ln_head");
  head_ = root.Matrix(spec().tied_head() ? "transformer.wte.weight" : "lm_head.weight");
  if (spec().skip_connections()) skip_weights_ = stack.Vector("skip_weights");
  for (const LayerPlan& planned : plan_.layers) {
    const LayerWeights block(weights, planned.prefix, options.weights);
    Layer layer;
    layer.ln_attn = LayerNormWeights(block, "ln_attn");
    layer.ln_mlp = LayerNormWeights(block, "ln_mlp");
    layer.mixer = NewMixer(spec().mixers(planned.mixer), spec(),
                           LayerWeights(weights, planned.prefix + "attn.", options.weights), options);
    layer.c_fc = block.Matrix("mlp.c_fc.weight");
    layer.c_proj = block.Matrix("mlp.c_proj.weight");
    if (spec().mlp_token_shift()) layer.mlp_x_k = block.Vector("mlp.x_k");
    if (spec().block_lambdas()) layer.lambdas = block.Vector("lambdas");
    layers_.push_back(std::move(layer));
  }
}

int64_t CpuEngine::WeightByteSize() const {
  int64_t bytes = head_.byte_size();
  if (!embedding_.Shows(head_.view())) bytes += embedding_.byte_size();
  for (const Layer& layer : layers_) {
    bytes += layer.mixer->WeightByteSize() + layer.c_fc.byte_size() + layer.c_proj.byte_size();
  }
  return bytes;
}

// All but the embedding, of which a token reads a row.
int64_t CpuEngine::StepWeightByteSize() const {
  const bool is_head = embedding_.Shows(head_.view());
  return WeightByteSize() - (is_head ? 0 : embedding_.byte_size());
}

SequenceState CpuEngine::NewSequence() const {
  std::vector<HostLayerState> states(layers_.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    states[i].mixer = CopyOnWrite<MixerState>(layers_[i].mixer->NewState());
    if (spec().mlp_token_shift()) states[i].mlp_shift.resize(width());
  }
  for (const int i : plan_.anchor_layers) {
    if (layers_[i].mixer->anchor_shifts()) states[i].anchor_shift.resize(width());
  }
  return NewHostSequence(/*stack_id=*/0, std::move(states));
}

absl::Status CpuEngine::Prepare(absl::Span<const PassRows> pass, ExecutionContext&) const {
  for (const PassRows& rows : pass) rows.sequence->Unshare();
  return absl::OkStatus();
}

absl::Status CpuEngine::Forward(absl::Span<const PassRows> pass, const PassObserver* observer,
                                ExecutionContext& context) const {
  const Scratch::Scope scope(context.scratch);
  const int64_t n = pass.back().first_row + pass.back().num_tokens();
  const auto matrix = [&](int64_t cols) { return context.scratch.Matrix(n, cols); };

  const MatrixView<float> x0 = matrix(width());
  for (const PassRows& rows : pass) {
    for (int64_t t = 0; t < rows.num_tokens(); ++t) {
      embedding_.CopyRow(rows.tokens[t], x0.row_span(rows.first_row + t));
    }
  }
  ln_emb_.Apply(x0, x0, context.pool);

  std::pmr::vector<MatrixView<float>> anchor_values(context.pool.memory());
  for (const int i : plan_.anchor_layers) {
    anchor_values.push_back(matrix(layers_[i].mixer->value_width()));
    Anchor(pass, i, x0, anchor_values.back(), context);
  }

  const MatrixView<float> x = matrix(width());
  std::copy_n(x0.data, n * width(), x.data);
  std::pmr::vector<MatrixView<float>> skips(context.pool.memory());
  const int64_t num_layers = static_cast<int64_t>(layers_.size());
  for (int64_t i = 0; i < num_layers; ++i) {
    const LayerPlan& planned = plan_.layers[i];
    const Layer& layer = layers_[i];
    if (planned.takes_skip >= 0) {
      AddScaled(x, skip_weights_[planned.takes_skip], skips.back());
      skips.pop_back();
    }
    if (!layer.lambdas.empty()) Blend(x, layer.lambdas[0], layer.lambdas[1], x0);
    Mix(pass, i, planned.anchor < 0 ? MatrixView<float>() : anchor_values[planned.anchor], x, context);
    Mlp(pass, i, x, context);
    if (planned.pushes_skip) {
      skips.push_back(matrix(width()));
      std::copy_n(x.data, n * width(), skips.back().data);
    }
    if (observer == nullptr) continue;
    for (size_t s = 0; s < pass.size(); ++s) {
      (*observer)(i, static_cast<int64_t>(s), x.Rows(pass[s].first_row, pass[s].num_tokens()));
    }
  }
  Logits(pass, x, context);
  return absl::OkStatus();
}

void CpuEngine::Anchor(absl::Span<const PassRows> pass, int layer, MatrixView<const float> x0, MatrixView<float> out,
                       ExecutionContext& context) const {
  const Scratch::Scope scope(context.scratch);
  const MatrixView<float> normed = context.scratch.Matrix(x0.rows, width());
  layers_[layer].ln_attn.Apply(x0, normed, context.pool);
  std::pmr::vector<AnchorRows> rows(context.pool.memory());
  for (const PassRows& p : pass) {
    rows.push_back({p.first_row, p.num_tokens(), &HostLayer(*p.sequence, layer).anchor_shift});
  }
  layers_[layer].mixer->AnchorValues(normed, rows, out, context);
}

void CpuEngine::Mix(absl::Span<const PassRows> pass, int64_t layer, MatrixView<const float> anchor, MatrixView<float> x,
                    ExecutionContext& context) const {
  const Scratch::Scope scope(context.scratch);
  const MatrixView<float> normed = context.scratch.Matrix(x.rows, width());
  const MatrixView<float> mixed = context.scratch.Matrix(x.rows, width());
  layers_[layer].ln_attn.Apply(x, normed, context.pool);
  std::pmr::vector<SequenceRows> rows(context.pool.memory());
  for (const PassRows& p : pass) {
    rows.push_back(
        {p.first_row, p.num_tokens(), p.sequence->position(), &HostLayer(*p.sequence, layer).mixer.Mutable()});
  }
  layers_[layer].mixer->Extend(normed, anchor, rows, mixed, context);
  AddScaled(x, static_cast<float>(spec().residual_scale()), mixed);
}

void CpuEngine::Mlp(absl::Span<const PassRows> pass, int64_t layer, MatrixView<float> x,
                    ExecutionContext& context) const {
  const Scratch::Scope scope(context.scratch);
  const Layer& weights = layers_[layer];
  const MatrixView<float> normed = context.scratch.Matrix(x.rows, width());
  const MatrixView<float> inner = context.scratch.Matrix(x.rows, weights.c_fc.outputs());
  const MatrixView<float> out = context.scratch.Matrix(x.rows, width());
  weights.ln_mlp.Apply(x, normed, context.pool);
  MatrixView<float> shifted = normed;
  if (spec().mlp_token_shift()) {
    shifted = context.scratch.Matrix(x.rows, width());
    std::pmr::vector<ShiftRows> rows(context.pool.memory());
    for (const PassRows& p : pass) {
      rows.push_back({p.first_row, p.num_tokens(), HostLayer(*p.sequence, layer).mlp_shift});
    }
    ShiftSequences(normed, rows, weights.mlp_x_k, shifted, context.pool);
    for (const PassRows& p : pass) {
      const absl::Span<const float> last = normed.row_span(p.first_row + p.num_tokens() - 1);
      std::copy(last.begin(), last.end(), HostLayer(*p.sequence, layer).mlp_shift.begin());
    }
  }
  MatMul(shifted, weights.c_fc, inner, context.pool);
  ForRowBlocks(context.pool, x.rows, [&](int64_t begin, int64_t count) { ReluSquared(inner.Rows(begin, count)); });
  MatMul(inner, weights.c_proj, out, context.pool);
  AddScaled(x, static_cast<float>(spec().residual_scale()), out);
}

void CpuEngine::Logits(absl::Span<const PassRows> pass, MatrixView<const float> x, ExecutionContext& context) const {
  int64_t rows = 0, wanting = 0;
  for (const PassRows& p : pass) {
    rows += p.logits.rows;
    wanting += p.logits.rows > 0;
  }
  if (rows == 0) return;

  const Scratch::Scope scope(context.scratch);
  const MatrixView<float> normed = context.scratch.Matrix(rows, width());
  // One product for all sequences; a single one gets its logits in place.
  MatrixView<float> all = wanting == 1 ? MatrixView<float>() : context.scratch.Matrix(rows, spec().vocab_size());
  int64_t row = 0;
  for (const PassRows& p : pass) {
    if (p.logits.rows == 0) continue;
    const int64_t first = p.first_row + p.num_tokens() - p.logits.rows;
    ln_head_.Apply(x.Rows(first, p.logits.rows), normed.Rows(row, p.logits.rows), context.pool);
    row += p.logits.rows;
    if (wanting == 1) all = p.logits;
  }
  MatMul(normed, head_, all, context.pool);
  if (spec().logit_softcap() > 0) {
    ForRowBlocks(context.pool, rows, [&](int64_t begin, int64_t count) {
      SoftCap(all.Rows(begin, count), static_cast<float>(spec().logit_softcap()));
    });
  }
  if (wanting == 1) return;
  row = 0;
  for (const PassRows& p : pass) {
    for (int64_t r = 0; r < p.logits.rows; ++r, ++row) {
      std::copy_n(all.row(row), spec().vocab_size(), p.logits.row(r));
    }
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> NewCpuEngine(const StackPlan& plan, const WeightSource& weights,
                                                     const ModelOptions& options) {
  RETURN_IF_ERROR(CheckMixers(plan.spec, options));
  if (options.weights != WeightType::kI8) return std::make_unique<CpuEngine>(plan, weights, options);
  ASSIGN_OR_RETURN(const std::unique_ptr<WeightSource> quantized, QuantizeWeights(plan.spec, weights));
  ModelOptions as_stored = options;
  as_stored.weights = WeightType::kAsStored;
  return std::make_unique<CpuEngine>(plan, *quantized, as_stored);
}

}  // namespace kvm
