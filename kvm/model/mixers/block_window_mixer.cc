#include "kvm/model/mixers/block_window_mixer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kvm/base/status_macros.h"
#include "kvm/model/mixers/chunk_pieces.h"
#include "kvm/model/mixers/qkv_mixer.h"
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
class BlockWindowState : public QkvState {
 public:
  // `sinks` has blocks of as many positions as there are sinks.
  BlockWindowState(ShiftHistory history, const BlockWindowShape& window, const BlockWindowShape& sinks,
                   int64_t window_chunks)
      : QkvState(std::move(history)),
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

class BlockWindowMixer : public QkvMixer {
 public:
  BlockWindowMixer(const BlockWindowSpec& spec, int64_t width, StackSpec::TableType rotary_table,
                   const LayerWeights& weights, DType state)
      : QkvMixer(QkvProjection(spec.projections(), width, rotary_table, weights)), spec_(spec), state_(state) {}

  std::unique_ptr<MixerState> NewState() const override {
    return std::make_unique<BlockWindowState>(projection().NewHistory(), Shape(spec_.chunk_len()),
                                              Shape(spec_.num_sinks()), spec_.window_chunks());
  }

 protected:
  void Attend(const QkvRows& rows, absl::Span<const SequenceRows> sequences, MatrixView<float> attended,
              ExecutionContext& context) const override;

 private:
  static BlockWindowState& StateOf(const SequenceRows& rows) { return *static_cast<BlockWindowState*>(rows.state); }
  BlockWindowShape Shape(int64_t block_len) const {
    const HeadSizes& heads = projection().heads();
    return {heads.num_kv_heads, heads.qk_dim, heads.v_dim, block_len, state_};
  }

  BlockWindowSpec spec_;
  DType state_;
};

void BlockWindowMixer::Attend(const QkvRows& rows, absl::Span<const SequenceRows> sequences, MatrixView<float> attended,
                              ExecutionContext& context) const {
  // A piece lies in one chunk, so all of its queries see the same window.
  ForChunkPieces(sequences, spec_.chunk_len(), context.pool.memory(), [&](absl::Span<const SequenceRows> pieces) {
    for (const SequenceRows& p : pieces) {
      StateOf(p).DropBefore(NewestBlocksBegin(p.position + 1, spec_.chunk_len(), spec_.window_chunks()));
      StateOf(p).window.Append(rows.k.Rows(p.first_row, p.num_tokens), rows.v.Rows(p.first_row, p.num_tokens));
    }
    AttendHeads(
        rows, pieces, {},
        [](const SequenceRows& p, int64_t h, Segments* segments) {
          StateOf(p).sinks.AppendSegments(h, segments);
          StateOf(p).window.AppendSegments(h, segments);
        },
        attended, context);
  });
}

}  // namespace

std::unique_ptr<Mixer> NewBlockWindowMixer(const BlockWindowSpec& spec, int64_t width,
                                           StackSpec::TableType rotary_table, const LayerWeights& weights,
                                           DType state) {
  return std::make_unique<BlockWindowMixer>(spec, width, rotary_table, weights, state);
}

}  // namespace kvm
