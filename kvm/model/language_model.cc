#include "kvm/model/language_model.h"

#include <algorithm>
#include <cmath>
#include <memory_resource>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvm/base/status_macros.h"
#include "kvm/kernels/cpu/matmul.h"
#include "kvm/kernels/cpu/pointwise/elementwise.h"
#include "kvm/kernels/cpu/pointwise/norms.h"
#include "kvm/model/cpu/token_embedding.h"
#include "kvm/model/mixers/mixer.h"
#include "kvm/model/mixers/new_mixer.h"
#include "kvm/model/mixers/row_blocks.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/layer_weights.h"
#include "kvm/model/weights/parameters.h"
#include "kvm/model/weights/quantized_weights.h"

namespace kvm {
namespace {

// Longer inputs are taken in passes of this many rows, which bounds working memory. Results do not depend on it.
constexpr int64_t kMaxRowsPerPass = 512;

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
  int anchor = -1;       // index into Impl::anchors, −1 for none
};

// The tokens of one sequence that one pass takes.
struct Piece {
  int64_t input = 0;  // index into the batch
  int64_t first_token = 0;
  int64_t first_row = 0;
  int64_t num_tokens = 0;
};

// Tells states of different stacks apart.
uint64_t StackId(const StackSpec& spec, const ModelOptions& options) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c :
       absl::StrCat(FormatStackSpec(spec), Name(options.state), options.provenance ? " provenance" : "")) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  return hash;
}

}  // namespace

struct LanguageModel::Impl {
  std::shared_ptr<const void> weights_memory;  // first, as it must outlive all that borrows from it
  StackSpec spec;
  uint64_t stack_id = 0;
  TokenEmbedding embedding;
  LayerNormWeights ln_emb, ln_head;
  PackedMatrix head;
  std::vector<Layer> layers;
  std::vector<int> anchors;  // layers whose value projection is a value anchor
  WeightVector skip_weights;

  int64_t width() const { return spec.width(); }

  absl::Status CheckBatch(absl::Span<const SequenceInput> batch, ExecutionContext& context) const;
  // Takes one pass: all rows of `pieces`, fewer than kMaxRowsPerPass.
  void Forward(absl::Span<const SequenceInput> batch, absl::Span<const Piece> pieces, ExecutionContext& context,
               HiddenObserver observer) const;
  void Anchor(absl::Span<const SequenceInput> batch, absl::Span<const Piece> pieces, const Layer& layer, int index,
              MatrixView<const float> x0, MatrixView<float> out, ExecutionContext& context) const;
  void Mix(absl::Span<const SequenceInput> batch, absl::Span<const Piece> pieces, int64_t layer,
           MatrixView<const float> anchor, MatrixView<float> x, ExecutionContext& context) const;
  void Mlp(absl::Span<const SequenceInput> batch, absl::Span<const Piece> pieces, int64_t layer, MatrixView<float> x,
           ExecutionContext& context) const;
  void Logits(absl::Span<const SequenceInput> batch, absl::Span<const Piece> pieces, MatrixView<const float> x,
              ExecutionContext& context) const;
};

LanguageModel::LanguageModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LanguageModel::~LanguageModel() = default;

absl::StatusOr<std::unique_ptr<LanguageModel>> LanguageModel::Create(const StackSpec& spec, const WeightSource& weights,
                                                                     const ModelOptions& options) {
  RETURN_IF_ERROR(ValidateStack(spec, KindsOf(options)));
  RETURN_IF_ERROR(CheckMixers(spec, options));
  RETURN_IF_ERROR(CheckWeights(spec, weights, KindsOf(options)));
  if (options.state != DType::kF32 && options.state != DType::kBF16 && options.state != DType::kI8) {
    return absl::InvalidArgumentError(
        absl::StrCat("state dtype: got ", Name(options.state), ", expected F32, BF16 or I8"));
  }
  if (options.weights == WeightType::kI8) {
    ASSIGN_OR_RETURN(const std::unique_ptr<WeightSource> quantized, QuantizeWeights(spec, weights));
    ModelOptions as_stored = options;
    as_stored.weights = WeightType::kAsStored;
    return Create(spec, *quantized, as_stored);
  }
  auto impl = std::make_unique<Impl>();
  impl->weights_memory = weights.Memory();
  impl->spec = spec;
  impl->stack_id = StackId(spec, options);
  const LayerWeights stack(weights, "transformer.", options.weights);
  const LayerWeights root(weights, "", options.weights);
  impl->embedding = TokenEmbedding(weights, options.weights);
  impl->ln_emb = LayerNormWeights(stack, "ln_emb");
  impl->ln_head = LayerNormWeights(stack, "ln_head");
  impl->head = root.Matrix(spec.tied_head() ? "transformer.wte.weight" : "lm_head.weight");
  if (spec.skip_connections()) impl->skip_weights = stack.Vector("skip_weights");
  for (int i = 0; i < spec.layers_size(); ++i) {
    const std::string prefix = absl::StrCat("transformer.h.", i, ".");
    const LayerWeights block(weights, prefix, options.weights);
    Layer layer;
    layer.ln_attn = LayerNormWeights(block, "ln_attn");
    layer.ln_mlp = LayerNormWeights(block, "ln_mlp");
    layer.mixer = NewMixer(spec.mixers(MixerIndex(spec, i)), spec,
                           LayerWeights(weights, prefix + "attn.", options.weights), options);
    layer.c_fc = block.Matrix("mlp.c_fc.weight");
    layer.c_proj = block.Matrix("mlp.c_proj.weight");
    if (spec.mlp_token_shift()) layer.mlp_x_k = block.Vector("mlp.x_k");
    if (spec.block_lambdas()) layer.lambdas = block.Vector("lambdas");
    if (const int anchor = AnchorLayer(spec, i, KindsOf(options)); anchor >= 0) {
      auto& anchors = impl->anchors;
      const auto known = std::find(anchors.begin(), anchors.end(), anchor);
      layer.anchor = static_cast<int>(known - anchors.begin());
      if (known == anchors.end()) anchors.push_back(anchor);
    }
    impl->layers.push_back(std::move(layer));
  }
  return std::unique_ptr<LanguageModel>(new LanguageModel(std::move(impl)));
}

const StackSpec& LanguageModel::spec() const { return impl_->spec; }
int64_t LanguageModel::vocab_size() const { return impl_->spec.vocab_size(); }

int64_t LanguageModel::WeightByteSize() const {
  int64_t bytes = impl_->head.byte_size();
  if (!impl_->embedding.Shows(impl_->head.view())) bytes += impl_->embedding.byte_size();
  for (const Layer& layer : impl_->layers) {
    bytes += layer.mixer->WeightByteSize() + layer.c_fc.byte_size() + layer.c_proj.byte_size();
  }
  return bytes;
}

int64_t LanguageModel::StepWeightByteSize() const {
  const bool is_head = impl_->embedding.Shows(impl_->head.view());
  return WeightByteSize() - (is_head ? 0 : impl_->embedding.byte_size());
}

SequenceState LanguageModel::NewSequence() const {
  std::vector<LayerState> states;
  for (const Layer& layer : impl_->layers) {
    LayerState state;
    state.mixer = CopyOnWrite<MixerState>(layer.mixer->NewState());
    if (impl_->spec.mlp_token_shift()) state.mlp_shift.resize(impl_->width());
    states.push_back(std::move(state));
  }
  for (const int i : impl_->anchors) {
    if (impl_->layers[i].mixer->anchor_shifts()) states[i].anchor_shift.resize(impl_->width());
  }
  return SequenceState(impl_->stack_id, std::move(states));
}

absl::Status LanguageModel::Extend(absl::Span<const SequenceInput> batch, ExecutionContext& context) const {
  return Extend(batch, context, [](int64_t, int64_t, int64_t, MatrixView<const float>) {});
}

absl::Status LanguageModel::Extend(absl::Span<const SequenceInput> batch, ExecutionContext& context,
                                   HiddenObserver observer) const {
  RETURN_IF_ERROR(impl_->CheckBatch(batch, context));
  std::pmr::vector<Piece> pieces(context.pool.memory());
  int64_t rows = 0;
  const auto flush = [&] {
    impl_->Forward(batch, pieces, context, observer);
    for (const Piece& p : pieces) batch[p.input].sequence->Advance(p.num_tokens);
    pieces.clear();
    rows = 0;
  };
  for (size_t i = 0; i < batch.size(); ++i) {
    const int64_t tokens = static_cast<int64_t>(batch[i].tokens.size());
    for (int64_t done = 0; done < tokens;) {
      const int64_t count = std::min(tokens - done, kMaxRowsPerPass - rows);
      pieces.push_back({static_cast<int64_t>(i), done, rows, count});
      done += count;
      rows += count;
      if (rows == kMaxRowsPerPass) flush();
    }
  }
  if (!pieces.empty()) flush();
  return absl::OkStatus();
}

absl::Status LanguageModel::Impl::CheckBatch(absl::Span<const SequenceInput> batch, ExecutionContext& context) const {
  std::pmr::vector<const SequenceState*> seen(context.pool.memory());
  for (size_t i = 0; i < batch.size(); ++i) {
    const SequenceInput& input = batch[i];
    const auto error = [i](auto... what) {
      return absl::InvalidArgumentError(absl::StrCat("sequence ", i, ": ", what...));
    };
    if (input.sequence == nullptr || input.sequence->stack_id() != stack_id) {
      return error("its state was not made by this model's NewSequence()");
    }
    seen.push_back(input.sequence);
    for (size_t t = 0; t < input.tokens.size(); ++t) {
      if (input.tokens[t] >= 0 && input.tokens[t] < spec.vocab_size()) continue;
      return error("token ", t, " is ", input.tokens[t], ", expected 0 to ", spec.vocab_size() - 1);
    }
    const int64_t tokens = static_cast<int64_t>(input.tokens.size());
    const bool rows_fit =
        input.logits.rows == 0 || input.logits.rows == tokens || (input.logits.rows == 1 && tokens > 0);
    if (!rows_fit || (input.logits.rows > 0 && input.logits.cols != spec.vocab_size())) {
      return error("logits are [", input.logits.rows, ", ", input.logits.cols, "], expected 0, 1 or ", tokens,
                   " rows of ", spec.vocab_size());
    }
  }
  std::sort(seen.begin(), seen.end());
  if (std::adjacent_find(seen.begin(), seen.end()) != seen.end()) {
    return absl::InvalidArgumentError("one sequence is named twice in a batch");
  }
  return absl::OkStatus();
}

void LanguageModel::Impl::Forward(absl::Span<const SequenceInput> batch, absl::Span<const Piece> pieces,
                                  ExecutionContext& context, HiddenObserver observer) const {
  const Scratch::Scope scope(context.scratch);
  const int64_t n = pieces.back().first_row + pieces.back().num_tokens;
  const auto matrix = [&](int64_t cols) { return context.scratch.Matrix(n, cols); };

  const MatrixView<float> x0 = matrix(width());
  for (const Piece& p : pieces) {
    for (int64_t t = 0; t < p.num_tokens; ++t) {
      embedding.CopyRow(batch[p.input].tokens[p.first_token + t], x0.row_span(p.first_row + t));
    }
  }
  ln_emb.Apply(x0, x0, context.pool);

  std::pmr::vector<MatrixView<float>> anchor_values(context.pool.memory());
  for (const int i : anchors) {
    anchor_values.push_back(matrix(layers[i].mixer->value_width()));
    Anchor(batch, pieces, layers[i], i, x0, anchor_values.back(), context);
  }

  const MatrixView<float> x = matrix(width());
  std::copy_n(x0.data, n * width(), x.data);
  std::pmr::vector<MatrixView<float>> skips(
      context.pool.memory());  // outputs of the first half of the layers, for the second half
  const int64_t num_layers = static_cast<int64_t>(layers.size());
  for (int64_t i = 0; i < num_layers; ++i) {
    const Layer& layer = layers[i];
    if (!skip_weights.empty() && i >= num_layers / 2) {
      AddScaled(x, skip_weights[i - num_layers / 2], skips.back());
      skips.pop_back();
    }
    if (!layer.lambdas.empty()) Blend(x, layer.lambdas[0], layer.lambdas[1], x0);
    Mix(batch, pieces, i, layer.anchor < 0 ? MatrixView<float>() : anchor_values[layer.anchor], x, context);
    Mlp(batch, pieces, i, x, context);
    if (!skip_weights.empty() && i < num_layers / 2) {
      skips.push_back(matrix(width()));
      std::copy_n(x.data, n * width(), skips.back().data);
    }
    for (const Piece& p : pieces) observer(i, p.input, p.first_token, x.Rows(p.first_row, p.num_tokens));
  }
  Logits(batch, pieces, x, context);
}

void LanguageModel::Impl::Anchor(absl::Span<const SequenceInput> batch, absl::Span<const Piece> pieces,
                                 const Layer& layer, int index, MatrixView<const float> x0, MatrixView<float> out,
                                 ExecutionContext& context) const {
  const Scratch::Scope scope(context.scratch);
  const MatrixView<float> normed = context.scratch.Matrix(x0.rows, width());
  layer.ln_attn.Apply(x0, normed, context.pool);
  std::pmr::vector<AnchorRows> rows(context.pool.memory());
  for (const Piece& p : pieces) {
    rows.push_back({p.first_row, p.num_tokens, &batch[p.input].sequence->layer(index).anchor_shift});
  }
  layer.mixer->AnchorValues(normed, rows, out, context);
}

void LanguageModel::Impl::Mix(absl::Span<const SequenceInput> batch, absl::Span<const Piece> pieces, int64_t layer,
                              MatrixView<const float> anchor, MatrixView<float> x, ExecutionContext& context) const {
  const Scratch::Scope scope(context.scratch);
  const MatrixView<float> normed = context.scratch.Matrix(x.rows, width());
  const MatrixView<float> mixed = context.scratch.Matrix(x.rows, width());
  layers[layer].ln_attn.Apply(x, normed, context.pool);
  std::pmr::vector<SequenceRows> rows(context.pool.memory());
  for (const Piece& p : pieces) {
    SequenceState& sequence = *batch[p.input].sequence;
    rows.push_back({p.first_row, p.num_tokens, sequence.position(), &sequence.layer(layer).mixer.Mutable()});
  }
  layers[layer].mixer->Extend(normed, anchor, rows, mixed, context);
  AddScaled(x, static_cast<float>(spec.residual_scale()), mixed);
}

void LanguageModel::Impl::Mlp(absl::Span<const SequenceInput> batch, absl::Span<const Piece> pieces, int64_t layer,
                              MatrixView<float> x, ExecutionContext& context) const {
  const Scratch::Scope scope(context.scratch);
  const Layer& weights = layers[layer];
  const MatrixView<float> normed = context.scratch.Matrix(x.rows, width());
  const MatrixView<float> inner = context.scratch.Matrix(x.rows, weights.c_fc.outputs());
  const MatrixView<float> out = context.scratch.Matrix(x.rows, width());
  weights.ln_mlp.Apply(x, normed, context.pool);
  MatrixView<float> shifted = normed;
  if (spec.mlp_token_shift()) {
    shifted = context.scratch.Matrix(x.rows, width());
    std::pmr::vector<ShiftRows> rows(context.pool.memory());
    for (const Piece& p : pieces) {
      rows.push_back({p.first_row, p.num_tokens, batch[p.input].sequence->layer(layer).mlp_shift});
    }
    ShiftSequences(normed, rows, weights.mlp_x_k, shifted, context.pool);
    for (const Piece& p : pieces) {
      const absl::Span<const float> last = normed.row_span(p.first_row + p.num_tokens - 1);
      std::copy(last.begin(), last.end(), batch[p.input].sequence->layer(layer).mlp_shift.begin());
    }
  }
  MatMul(shifted, weights.c_fc, inner, context.pool);
  ForRowBlocks(context.pool, x.rows, [&](int64_t begin, int64_t count) { ReluSquared(inner.Rows(begin, count)); });
  MatMul(inner, weights.c_proj, out, context.pool);
  AddScaled(x, static_cast<float>(spec.residual_scale()), out);
}

void LanguageModel::Impl::Logits(absl::Span<const SequenceInput> batch, absl::Span<const Piece> pieces,
                                 MatrixView<const float> x, ExecutionContext& context) const {
  // The rows that want logits, and where these go.
  struct Wanted {
    int64_t first_row;
    MatrixView<float> logits;
  };
  std::pmr::vector<Wanted> wanted(context.pool.memory());
  for (const Piece& p : pieces) {
    const SequenceInput& input = batch[p.input];
    const int64_t tokens = static_cast<int64_t>(input.tokens.size());
    if (input.logits.rows == tokens) {
      wanted.push_back({p.first_row, input.logits.Rows(p.first_token, p.num_tokens)});
    } else if (input.logits.rows == 1 && p.first_token + p.num_tokens == tokens) {
      wanted.push_back({p.first_row + p.num_tokens - 1, input.logits});
    }
  }
  int64_t rows = 0;
  for (const Wanted& w : wanted) rows += w.logits.rows;
  if (rows == 0) return;

  const Scratch::Scope scope(context.scratch);
  const MatrixView<float> normed = context.scratch.Matrix(rows, width());
  int64_t row = 0;
  for (const Wanted& w : wanted) {
    ln_head.Apply(x.Rows(w.first_row, w.logits.rows), normed.Rows(row, w.logits.rows), context.pool);
    row += w.logits.rows;
  }
  // One product for all sequences; a single one gets its logits in place.
  const MatrixView<float> all = wanted.size() == 1 ? wanted[0].logits : context.scratch.Matrix(rows, spec.vocab_size());
  MatMul(normed, head, all, context.pool);
  if (spec.logit_softcap() > 0) {
    ForRowBlocks(context.pool, rows, [&](int64_t begin, int64_t count) {
      SoftCap(all.Rows(begin, count), static_cast<float>(spec.logit_softcap()));
    });
  }
  if (wanted.size() == 1) return;
  row = 0;
  for (const Wanted& w : wanted) {
    for (int64_t r = 0; r < w.logits.rows; ++r, ++row) {
      std::copy_n(all.row(row), spec.vocab_size(), w.logits.row(r));
    }
  }
}

}  // namespace kvm
