#include "kvm/model/mixers/block_window_mixer.h"

#include <algorithm>
#include <cmath>
#include <memory_resource>
#include <utility>
#include <vector>

#include "kvm/base/status_macros.h"
#include "kvm/kernels/cpu/slot_attention.h"
#include "kvm/model/mixers/chunk_pieces.h"
#include "kvm/model/mixers/qkv_projection.h"
#include "kvm/state/block_window.h"

namespace kvm {
namespace {

// A tensor [length, heads, dim] as one head's rows.
MatrixView<float> HeadRows(Tensor& tensor, int64_t head) {
  const int64_t length = tensor.shape()[0], heads = tensor.shape()[1], dim = tensor.shape()[2];
  return {tensor.floats().data() + head * dim, length, dim, heads * dim};
}

// What a layer remembers of one sequence: the window, and of the positions before it those that are sinks. So every
// position is in one place, and where it is depends on the position of the newest token alone.
class BlockWindowState : public MixerState {
 public:
  // `sinks` has blocks of as many positions as there are sinks.
  BlockWindowState(ShiftHistory history, const BlockWindowShape& window, const BlockWindowShape& sinks,
                   int64_t window_chunks)
      : history(std::move(history)),
        window(window),
        sinks(sinks),
        shape_(window),
        window_chunks_(window_chunks),
        num_sinks_(sinks.block_len) {}

  std::unique_ptr<MixerState> Clone() const override { return std::make_unique<BlockWindowState>(*this); }
  int64_t ByteSize() const override { return history.ByteSize() + window.ByteSize() + sinks.ByteSize(); }
  void Save(const StateWriter& out) const override;
  absl::Status Restore(const StateReader& in, int64_t position) override;
  // bswa_k, bswa_v [L, Hk, d]: sinks that left the window, then the window; bswa_block_size [], bswa_n_blocks [] and
  // sink_size []: chunk length, chunks and sinks; and the shift histories.
  std::vector<NamedTensor> Export() const override;
  StateCoverage Coverage() const override { return {{}, {window.begin(), window.end()}}; }

  // The window gives up everything before `position`; sinks among it stay.
  void DropBefore(int64_t position);

  ShiftHistory history;
  BlockWindow window;
  BlockWindow sinks;

 private:
  BlockWindowShape shape_;
  int64_t window_chunks_;
  int64_t num_sinks_;
};

void BlockWindowState::DropBefore(int64_t position) {
  const int64_t leaving = std::min(num_sinks_, position) - sinks.end();
  if (leaving > 0) {
    Tensor keys(DType::kF32, {leaving, shape_.num_heads, shape_.qk_dim});
    Tensor values(DType::kF32, {leaving, shape_.num_heads, shape_.v_dim});
    for (int64_t h = 0; h < shape_.num_heads; ++h) {
      window.Read(h, sinks.end(), leaving, HeadRows(keys, h), HeadRows(values, h));
    }
    sinks.Append({keys.floats().data(), leaving, shape_.num_heads * shape_.qk_dim},
                 {values.floats().data(), leaving, shape_.num_heads * shape_.v_dim});
  }
  window.DropBefore(position);
}

void BlockWindowState::Save(const StateWriter& out) const {
  history.Save(out.Part("shift"));
  window.Save(out.Part("window"));
  sinks.Save(out.Part("sinks"));
}

absl::Status BlockWindowState::Restore(const StateReader& in, int64_t position) {
  RETURN_IF_ERROR(history.Restore(in.Part("shift")));
  const int64_t begin = NewestBlocksBegin(position, shape_.block_len, window_chunks_);
  RETURN_IF_ERROR(window.Restore(in.Part("window"), begin, position));
  return sinks.Restore(in.Part("sinks"), 0, std::min(num_sinks_, begin));
}

std::vector<NamedTensor> BlockWindowState::Export() const {
  const int64_t in_window = window.end() - window.begin();
  Tensor keys(DType::kF32, {sinks.end() + in_window, shape_.num_heads, shape_.qk_dim});
  Tensor values(DType::kF32, {sinks.end() + in_window, shape_.num_heads, shape_.v_dim});
  for (int64_t h = 0; h < shape_.num_heads; ++h) {
    const MatrixView<float> k = HeadRows(keys, h), v = HeadRows(values, h);
    sinks.Read(h, 0, sinks.end(), k, v);
    window.Read(h, window.begin(), in_window, k.Rows(sinks.end(), in_window), v.Rows(sinks.end(), in_window));
  }
  std::vector<NamedTensor> tensors;
  history.Export(&tensors);
  tensors.push_back({"bswa_k", std::move(keys)});
  tensors.push_back({"bswa_v", std::move(values)});
  tensors.push_back({"bswa_block_size", Tensor::FromInts({}, {shape_.block_len})});
  tensors.push_back({"bswa_n_blocks", Tensor::FromInts({}, {window_chunks_})});
  tensors.push_back({"sink_size", Tensor::FromInts({}, {num_sinks_})});
  return tensors;
}

class BlockWindowMixer : public Mixer {
 public:
  BlockWindowMixer(const BlockWindowSpec& spec, int64_t width, StackSpec::TableType rotary_table,
                   const LayerWeights& weights, DType state)
      : spec_(spec), projection_(spec.projections(), width, rotary_table, weights), state_(state) {}

  std::unique_ptr<MixerState> NewState() const override {
    return std::make_unique<BlockWindowState>(projection_.NewHistory(), Shape(spec_.chunk_len()),
                                              Shape(spec_.num_sinks()), spec_.window_chunks());
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
  BlockWindowShape Shape(int64_t block_len) const {
    const HeadSizes& heads = projection_.heads();
    return {heads.num_kv_heads, heads.qk_dim, heads.v_dim, block_len, state_};
  }
  // Pieces lie in one chunk each, so all of a piece's queries see the same window.
  void Attend(absl::Span<const SequenceRows> pieces, MatrixView<const float> q, MatrixView<const float> k,
              MatrixView<const float> v, MatrixView<float> attended, ExecutionContext& context) const;

  BlockWindowSpec spec_;
  QkvProjection projection_;
  DType state_;
};

void BlockWindowMixer::Extend(MatrixView<const float> x, MatrixView<const float> anchor,
                              absl::Span<const SequenceRows> sequences, MatrixView<float> out,
                              ExecutionContext& context) const {
  const Scratch::Scope scope(context.scratch);
  const MatrixView<float> q = context.scratch.Matrix(x.rows, projection_.q_width());
  const MatrixView<float> k = context.scratch.Matrix(x.rows, projection_.k_width());
  const MatrixView<float> v = context.scratch.Matrix(x.rows, projection_.v_width());
  std::pmr::vector<ProjectionRows> rows(context.pool.memory());
  for (const SequenceRows& s : sequences) {
    rows.push_back({s.first_row, s.num_tokens, s.position, &static_cast<BlockWindowState*>(s.state)->history});
  }
  projection_.Project(x, anchor, rows, q, k, v, context);
  const MatrixView<float> attended = context.scratch.Matrix(x.rows, projection_.out_width());
  ForChunkPieces(sequences, spec_.chunk_len(), context.pool.memory(),
                 [&](absl::Span<const SequenceRows> pieces) { Attend(pieces, q, k, v, attended, context); });
  projection_.Output(attended, out, context);
}

void BlockWindowMixer::Attend(absl::Span<const SequenceRows> pieces, MatrixView<const float> q,
                              MatrixView<const float> k, MatrixView<const float> v, MatrixView<float> attended,
                              ExecutionContext& context) const {
  const HeadSizes& heads = projection_.heads();
  const int64_t group = heads.num_heads / heads.num_kv_heads;
  const int64_t chunk = spec_.chunk_len();
  std::pmr::vector<std::pmr::vector<KeyValueSegment>> segments(pieces.size() * heads.num_kv_heads,
                                                               context.pool.memory());
  std::pmr::vector<AttentionHead> work(context.pool.memory());
  for (size_t i = 0; i < pieces.size(); ++i) {
    const SequenceRows& p = pieces[i];
    BlockWindowState& state = *static_cast<BlockWindowState*>(p.state);
    state.DropBefore(std::max<int64_t>(0, p.position / chunk - spec_.window_chunks() + 1) * chunk);
    state.window.Append(k.Rows(p.first_row, p.num_tokens), v.Rows(p.first_row, p.num_tokens));
    std::pmr::vector<KeyValueSegment>* const of_piece = &segments[i * heads.num_kv_heads];
    for (int64_t h = 0; h < heads.num_kv_heads; ++h) {
      state.sinks.AppendSegments(h, &of_piece[h]);
      state.window.AppendSegments(h, &of_piece[h]);
    }
    for (int64_t h = 0; h < heads.num_heads; ++h) {
      AttentionHead head;
      head.queries = q.Rows(p.first_row, p.num_tokens).Cols(h * heads.qk_dim, heads.qk_dim);
      head.out = attended.Rows(p.first_row, p.num_tokens).Cols(h * heads.v_dim, heads.v_dim);
      head.segments = of_piece[h / group];
      head.first_position = p.position;
      head.window_scale = 1 / std::sqrt(static_cast<float>(heads.qk_dim));
      work.push_back(head);
    }
  }
  SlotAttention(work, context.pool);
}

}  // namespace

std::unique_ptr<Mixer> NewBlockWindowMixer(const BlockWindowSpec& spec, int64_t width,
                                           StackSpec::TableType rotary_table, const LayerWeights& weights,
                                           DType state) {
  return std::make_unique<BlockWindowMixer>(spec, width, rotary_table, weights, state);
}

}  // namespace kvm
