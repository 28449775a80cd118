#include "kvm/model/mixers/attention_mixer.h"

#include <algorithm>
#include <cmath>
#include <memory_resource>
#include <utility>
#include <vector>

#include "kvm/base/status_macros.h"
#include "kvm/kernels/cpu/slot_attention.h"
#include "kvm/model/mixers/qkv_projection.h"
#include "kvm/state/block_window.h"

namespace kvm {
namespace {

class AttentionState : public MixerState {
 public:
  AttentionState(ShiftHistory history, const BlockWindowShape& shape, int64_t span)
      : history(std::move(history)), window(shape), shape_(shape), span_(span) {}

  std::unique_ptr<MixerState> Clone() const override { return std::make_unique<AttentionState>(*this); }
  int64_t ByteSize() const override { return history.ByteSize() + window.ByteSize(); }
  void Save(const StateWriter& out) const override;
  absl::Status Restore(const StateReader& in, int64_t position) override;
  std::vector<NamedTensor> Export() const override;
  StateCoverage Coverage() const override { return {{}, {window.begin(), window.end()}}; }

  ShiftHistory history;
  BlockWindow window;

 private:
  BlockWindowShape shape_;
  int64_t span_;
};

void AttentionState::Save(const StateWriter& out) const {
  history.Save(out.Part("shift"));
  window.Save(out.Part("window"));
}

absl::Status AttentionState::Restore(const StateReader& in, int64_t position) {
  RETURN_IF_ERROR(history.Restore(in.Part("shift")));
  // Blocks wholly before what the next query sees are gone.
  const int64_t first_seen = span_ == kUnlimitedSpan ? 0 : std::max<int64_t>(0, position - span_ + 1);
  const int64_t begin = first_seen / shape_.block_len * shape_.block_len;
  return window.Restore(in.Part("window"), begin, position);
}

// Full attention: k, v [T, Hk, d]. Sliding window: kvm_alt_swa_swa_{k,v} [Hk, L, d], the last L <= span positions.
std::vector<NamedTensor> AttentionState::Export() const {
  std::vector<NamedTensor> tensors;
  history.Export(&tensors);
  const bool sliding = span_ != kUnlimitedSpan;
  const int64_t heads = shape_.num_heads;
  const int64_t length = std::min(span_, window.end());
  const auto tensor = [&](int64_t dim) {
    return Tensor(DType::kF32, sliding ? Shape{heads, length, dim} : Shape{length, heads, dim});
  };
  const auto head_rows = [&](Tensor& t, int64_t head, int64_t dim) {
    float* const data = t.floats().data();
    return sliding ? MatrixView<float>(data + head * length * dim, length, dim)
                   : MatrixView<float>(data + head * dim, length, dim, heads * dim);
  };
  Tensor keys = tensor(shape_.qk_dim), values = tensor(shape_.v_dim);
  for (int64_t h = 0; h < heads; ++h) {
    window.Read(h, window.end() - length, length, head_rows(keys, h, shape_.qk_dim),
                head_rows(values, h, shape_.v_dim));
  }
  tensors.push_back({sliding ? "kvm_alt_swa_swa_k" : "k", std::move(keys)});
  tensors.push_back({sliding ? "kvm_alt_swa_swa_v" : "v", std::move(values)});
  return tensors;
}

class AttentionMixer : public Mixer {
 public:
  AttentionMixer(const AttentionSpec& spec, int64_t width, StackSpec::TableType rotary_table,
                 const LayerWeights& weights, DType state)
      : projection_(spec.projections(), width, rotary_table, weights),
        span_(spec.has_window() ? spec.window() : kUnlimitedSpan),
        shape_{projection_.heads().num_kv_heads, projection_.heads().qk_dim, projection_.heads().v_dim, kAttentionBlock,
               state} {}

  std::unique_ptr<MixerState> NewState() const override {
    return std::make_unique<AttentionState>(projection_.NewHistory(), shape_, span_);
  }
  void Extend(MatrixView<const float> x, MatrixView<const float> anchor, absl::Span<const SequenceRows> sequences,
              MatrixView<float> out, ExecutionContext& context) const override;
  void AnchorValues(MatrixView<const float> x0, absl::Span<const AnchorRows>, MatrixView<float> out,
                    ExecutionContext& context) const override {
    projection_.AnchorValues(x0, out, context);
  }
  int64_t value_width() const override { return projection_.v_width(); }
  int64_t WeightByteSize() const override { return projection_.WeightByteSize(); }

 private:
  QkvProjection projection_;
  int64_t span_;
  BlockWindowShape shape_;
};

void AttentionMixer::Extend(MatrixView<const float> x, MatrixView<const float> anchor,
                            absl::Span<const SequenceRows> sequences, MatrixView<float> out,
                            ExecutionContext& context) const {
  const Scratch::Scope scope(context.scratch);
  const HeadSizes& heads = projection_.heads();
  const MatrixView<float> q = context.scratch.Matrix(x.rows, projection_.q_width());
  const MatrixView<float> k = context.scratch.Matrix(x.rows, projection_.k_width());
  const MatrixView<float> v = context.scratch.Matrix(x.rows, projection_.v_width());
  std::pmr::vector<ProjectionRows> rows(context.pool.memory());
  for (const SequenceRows& s : sequences) {
    rows.push_back({s.first_row, s.num_tokens, s.position, &static_cast<AttentionState*>(s.state)->history});
  }
  projection_.Project(x, anchor, rows, q, k, v, context);

  const MatrixView<float> attended = context.scratch.Matrix(x.rows, projection_.out_width());
  const float scale = 1 / std::sqrt(static_cast<float>(heads.qk_dim));
  std::pmr::vector<std::pmr::vector<KeyValueSegment>> segments(sequences.size() * heads.num_kv_heads,
                                                               context.pool.memory());
  std::pmr::vector<AttentionHead> work(context.pool.memory());
  for (size_t i = 0; i < sequences.size(); ++i) {
    const SequenceRows& s = sequences[i];
    BlockWindow& window = static_cast<AttentionState*>(s.state)->window;
    window.Append(k.Rows(s.first_row, s.num_tokens), v.Rows(s.first_row, s.num_tokens));
    std::pmr::vector<KeyValueSegment>* const of_sequence = &segments[i * heads.num_kv_heads];
    for (int64_t h = 0; h < heads.num_kv_heads; ++h) window.AppendSegments(h, &of_sequence[h]);
    for (int64_t h = 0; h < heads.num_heads; ++h) {
      AttentionHead head;
      head.queries = q.Rows(s.first_row, s.num_tokens).Cols(h * heads.qk_dim, heads.qk_dim);
      head.out = attended.Rows(s.first_row, s.num_tokens).Cols(h * heads.v_dim, heads.v_dim);
      head.segments = of_sequence[h / (heads.num_heads / heads.num_kv_heads)];
      head.first_position = s.position;
      head.span = span_;
      head.window_scale = scale;
      work.push_back(head);
    }
  }
  SlotAttention(work, context.pool);
  projection_.Output(attended, out, context);

  if (span_ == kUnlimitedSpan) return;
  for (const SequenceRows& s : sequences) {
    // The next query sees positions from here on.
    static_cast<AttentionState*>(s.state)->window.DropBefore(s.position + s.num_tokens - span_ + 1);
  }
}

}  // namespace

std::unique_ptr<Mixer> NewAttentionMixer(const AttentionSpec& spec, int64_t width, StackSpec::TableType rotary_table,
                                         const LayerWeights& weights, DType state) {
  return std::make_unique<AttentionMixer>(spec, width, rotary_table, weights, state);
}

}  // namespace kvm
