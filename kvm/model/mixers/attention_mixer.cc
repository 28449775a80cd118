#include "kvm/model/mixers/attention_mixer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kvm/base/status_macros.h"
#include "kvm/model/mixers/qkv_mixer.h"
#include "kvm/state/block_window.h"

namespace kvm {
namespace {

class AttentionState : public QkvState {
 public:
  AttentionState(ShiftHistory history, const BlockWindowShape& shape, int64_t span)
      : QkvState(std::move(history)), window(shape), shape_(shape), span_(span) {}

  std::unique_ptr<MixerState> Clone() const override { return std::make_unique<AttentionState>(*this); }
  int64_t ByteSize() const override { return history.ByteSize() + window.ByteSize(); }
  void Save(const StateWriter& out) const override;
  absl::Status Restore(const StateReader& in, int64_t position) override;
  std::vector<NamedTensor> Export() const override;
  StateCoverage Coverage() const override { return {{}, {window.begin(), window.end()}}; }

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

class AttentionMixer : public QkvMixer {
 public:
  AttentionMixer(const AttentionSpec& spec, int64_t width, StackSpec::TableType rotary_table,
                 const LayerWeights& weights, DType state)
      : QkvMixer(QkvProjection(spec.projections(), width, rotary_table, weights)),
        span_(spec.has_window() ? spec.window() : kUnlimitedSpan),
        shape_{projection().heads().num_kv_heads, projection().heads().qk_dim, projection().heads().v_dim,
               kAttentionBlock, state} {}

  std::unique_ptr<MixerState> NewState() const override {
    return std::make_unique<AttentionState>(projection().NewHistory(), shape_, span_);
  }

 protected:
  void Attend(const QkvRows& rows, absl::Span<const SequenceRows> sequences, MatrixView<float> attended,
              ExecutionContext& context) const override;

 private:
  static BlockWindow& WindowOf(const SequenceRows& rows) { return static_cast<AttentionState*>(rows.state)->window; }

  int64_t span_;
  BlockWindowShape shape_;
};

void AttentionMixer::Attend(const QkvRows& rows, absl::Span<const SequenceRows> sequences, MatrixView<float> attended,
                            ExecutionContext& context) const {
  for (const SequenceRows& s : sequences) {
    WindowOf(s).Append(rows.k.Rows(s.first_row, s.num_tokens), rows.v.Rows(s.first_row, s.num_tokens));
  }
  HeadOptions options;
  options.span = span_;
  AttendHeads(
      rows, sequences, options,
      [](const SequenceRows& s, int64_t h, Segments* segments) { WindowOf(s).AppendSegments(h, segments); }, attended,
      context);
  if (span_ == kUnlimitedSpan) return;
  // The next query sees positions from here on.
  for (const SequenceRows& s : sequences) WindowOf(s).DropBefore(s.position + s.num_tokens - span_ + 1);
}

}  // namespace

std::unique_ptr<Mixer> NewAttentionMixer(const AttentionSpec& spec, int64_t width, StackSpec::TableType rotary_table,
                                         const LayerWeights& weights, DType state) {
  return std::make_unique<AttentionMixer>(spec, width, rotary_table, weights, state);
}

}  // namespace kvm
