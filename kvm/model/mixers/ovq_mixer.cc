#include "kvm/model/mixers/ovq_mixer.h"

#include <algorithm>
#include <cmath>
#include <memory_resource>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvm/base/status_macros.h"
#include "kvm/kernels/cpu/ovq_update.h"
#include "kvm/kernels/cpu/pointwise/elementwise.h"
#include "kvm/kernels/cpu/pointwise/norms.h"
#include "kvm/kernels/cpu/slot_attention.h"
#include "kvm/model/mixers/chunk_pieces.h"
#include "kvm/model/mixers/qkv_mixer.h"
#include "kvm/model/mixers/row_blocks.h"
#include "kvm/model/stack/mixer_sizes.h"
#include "kvm/state/block_window.h"
#include "kvm/state/ovq_memory.h"

namespace kvm {
namespace {

// Added to the lengths of queries and keys.
constexpr float kLengthEpsilon = 1e-5f;

// What an OVQ layer remembers of one sequence.
class OvqState : public QkvState {
 public:
  OvqState(ShiftHistory history, const BlockWindowShape& shape, const OvqSchedule& schedule)
      : QkvState(std::move(history)),
        pending(shape),
        heads(shape.num_heads, OvqMemory(shape.v_dim)),
        shape_(shape),
        schedule_(schedule) {}

  std::unique_ptr<MixerState> Clone() const override { return std::make_unique<OvqState>(*this); }
  int64_t ByteSize() const override {
    int64_t bytes = history.ByteSize() + pending.ByteSize();
    for (const OvqMemory& head : heads) bytes += head.ByteSize();
    return bytes;
  }
  void Save(const StateWriter& out) const override;
  absl::Status Restore(const StateReader& in, int64_t position) override;
  // ovq_d_k, ovq_d_v [H, M, d], ovq_d_counts [H, M, 1]: the dictionary with zero rows up to its largest size;
  // ovq_pending_k, ovq_pending_v [H, L, d]: the chunk being filled; and the shift histories.
  std::vector<NamedTensor> Export() const override;
  int64_t NumRows() const override { return heads[0].count(); }
  StateCoverage Coverage() const override { return {{0, pending.begin()}, {pending.begin(), pending.end()}}; }

  BlockWindow pending;           // keys of unit length, and values
  std::vector<OvqMemory> heads;  // the dictionaries

 private:
  BlockWindowShape shape_;
  OvqSchedule schedule_;
};

void OvqState::Save(const StateWriter& out) const {
  history.Save(out.Part("shift"));
  pending.Save(out.Part("pending"));
  for (size_t h = 0; h < heads.size(); ++h) heads[h].Save(out.Part(absl::StrCat("head.", h)));
}

// Counts are of at least one token, and their logarithms are theirs: those that are not are replaced. A last bit may
// differ between machines, and stays as it is.
absl::Status CorrectLogCounts(OvqDictionary dictionary) {
  for (int64_t i = 0; i < dictionary.count; ++i) {
    const float count = dictionary.counts[i];
    if (!(count >= 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("centroid ", i, " has the count ", count, "; expected at least 1"));
    }
    const float log_count = std::log(count);
    if (std::abs(dictionary.log_counts[i] - log_count) <= 1e-6f * std::abs(log_count)) continue;
    dictionary.log_counts[i] = log_count;
  }
  return absl::OkStatus();
}

absl::Status OvqState::Restore(const StateReader& in, int64_t position) {
  RETURN_IF_ERROR(history.Restore(in.Part("shift")));
  const int64_t complete = position / shape_.block_len * shape_.block_len;
  RETURN_IF_ERROR(pending.Restore(in.Part("pending"), complete, position));
  const int64_t centroids = DictionarySize(schedule_, complete);
  for (size_t h = 0; h < heads.size(); ++h) {
    RETURN_IF_ERROR(heads[h].Restore(in.Part(absl::StrCat("head.", h)), centroids));
    const absl::Status corrected = CorrectLogCounts(heads[h].Reserve(0));
    if (!corrected.ok()) {
      return absl::Status(corrected.code(), absl::StrCat("state ", in.FullName("head."), h, ": ", corrected.message()));
    }
  }
  return absl::OkStatus();
}

std::vector<NamedTensor> OvqState::Export() const {
  const int64_t num_heads = shape_.num_heads, dim = shape_.v_dim, max_centroids = schedule_.max_centroids;
  const int64_t length = pending.end() - pending.begin();
  Tensor keys(DType::kF32, {num_heads, max_centroids, dim}), values(DType::kF32, {num_heads, max_centroids, dim});
  Tensor counts(DType::kF32, {num_heads, max_centroids, 1});
  Tensor pending_keys(DType::kF32, {num_heads, length, dim}), pending_values(DType::kF32, {num_heads, length, dim});
  for (int64_t h = 0; h < num_heads; ++h) {
    const auto head = [h, dim](Tensor& tensor) {
      const int64_t rows = tensor.shape()[1];
      return MatrixView<float>(tensor.floats().data() + h * rows * dim, rows, dim);
    };
    heads[h].Read(head(keys), head(values), counts.floats().subspan(h * max_centroids, max_centroids));
    pending.Read(h, pending.begin(), length, head(pending_keys), head(pending_values));
  }
  std::vector<NamedTensor> tensors;
  history.Export(&tensors);
  tensors.push_back({"ovq_d_k", std::move(keys)});
  tensors.push_back({"ovq_d_v", std::move(values)});
  tensors.push_back({"ovq_d_counts", std::move(counts)});
  tensors.push_back({"ovq_pending_k", std::move(pending_keys)});
  tensors.push_back({"ovq_pending_v", std::move(pending_values)});
  return tensors;
}

class OvqMixer : public QkvMixer {
 public:
  OvqMixer(const OvqSpec& spec, int64_t width, const LayerWeights& weights, DType state);

  std::unique_ptr<MixerState> NewState() const override {
    return std::make_unique<OvqState>(projection().NewHistory(), pending_shape_, ToOvqSchedule(spec_));
  }

 protected:
  void Attend(const QkvRows& rows, absl::Span<const SequenceRows> sequences, MatrixView<float> attended,
              ExecutionContext& context) const override;

 private:
  static OvqState& StateOf(const SequenceRows& rows) { return *static_cast<OvqState*>(rows.state); }
  int64_t num_heads() const { return projection().heads().num_heads; }
  int64_t head_dim() const { return projection().heads().v_dim; }
  KeyValueSegment Readout(const OvqMemory& dictionary) const {
    return dictionary.Readout(/*biased=*/!spec_.counts_for_rate_only());
  }

  // Dictionaries take in the chunks that the pieces complete.
  void TakeCompleteChunks(absl::Span<const SequenceRows> pieces, ExecutionContext& context) const;
  // values −= what the dictionaries predict for keys. Both hold the chunk of state i, head h from row
  // (i·num_heads + h)·chunk_len on.
  void SubtractPredictions(absl::Span<OvqState* const> states, MatrixView<const float> keys, MatrixView<float> values,
                           ExecutionContext& context) const;

  OvqSpec spec_;
  BlockWindowShape pending_shape_;
  std::vector<float> scales_;  // per head: beta·sqrt(d)
};

OvqMixer::OvqMixer(const OvqSpec& spec, int64_t width, const LayerWeights& weights, DType state)
    : QkvMixer(QkvProjection(spec.projections(), width, weights)),
      spec_(spec),
      pending_shape_{num_heads(), head_dim(), head_dim(), spec.chunk_len(), state},
      scales_(weights.Vector("beta")) {
  for (float& scale : scales_) scale *= std::sqrt(static_cast<float>(head_dim()));
}

void OvqMixer::Attend(const QkvRows& rows, absl::Span<const SequenceRows> sequences, MatrixView<float> attended,
                      ExecutionContext& context) const {
  ForRowBlocks(context.pool, rows.x.rows, [&](int64_t begin, int64_t count) {
    for (const MatrixView<float>& m : {rows.q.Rows(begin, count), rows.k.Rows(begin, count)}) {
      HeadSoftUnitLength(m, head_dim(), kLengthEpsilon, m);
    }
  });
  HeadOptions options;
  options.state_scales = options.window_scales = scales_;
  ForChunkPieces(sequences, spec_.chunk_len(), context.pool.memory(), [&](absl::Span<const SequenceRows> pieces) {
    for (const SequenceRows& p : pieces) {
      StateOf(p).pending.Append(rows.k.Rows(p.first_row, p.num_tokens), rows.v.Rows(p.first_row, p.num_tokens));
    }
    AttendHeads(
        rows, pieces, options,
        [&](const SequenceRows& p, int64_t h, Segments* segments) {
          segments->push_back(Readout(StateOf(p).heads[h]));
          StateOf(p).pending.AppendSegments(h, segments);
        },
        attended, context);
    TakeCompleteChunks(pieces, context);
  });
}

void OvqMixer::TakeCompleteChunks(absl::Span<const SequenceRows> pieces, ExecutionContext& context) const {
  const int64_t chunk = spec_.chunk_len();
  std::pmr::vector<OvqState*> states(context.pool.memory());
  for (const SequenceRows& p : pieces) {
    if ((p.position + p.num_tokens) % chunk == 0) states.push_back(&StateOf(p));
  }
  if (states.empty()) return;

  const Scratch::Scope scope(context.scratch);
  const int64_t tasks = static_cast<int64_t>(states.size()) * num_heads();
  const MatrixView<float> keys = context.scratch.Matrix(tasks * chunk, head_dim());
  const MatrixView<float> values = context.scratch.Matrix(tasks * chunk, head_dim());
  context.pool.ParallelFor(tasks, [&](int64_t task) {
    const BlockWindow& pending = states[task / num_heads()]->pending;
    pending.Read(task % num_heads(), pending.begin(), chunk, keys.Rows(task * chunk, chunk),
                 values.Rows(task * chunk, chunk));
  });
  if (spec_.delta_rule()) SubtractPredictions(states, keys, values, context);
  context.pool.ParallelFor(tasks, [&](int64_t task) {
    OvqState& state = *states[task / num_heads()];
    OvqMemory& memory = state.heads[task % num_heads()];
    OvqUpdateOptions options;
    options.num_centroids = DictionarySize(ToOvqSchedule(spec_), state.pending.end());
    options.values_are_errors = spec_.delta_rule() && memory.count() > 0;
    options.normalize_keys = spec_.normalize_centroids();
    options.normalize_values = spec_.normalize_centroids() && !spec_.delta_rule();
    OvqDictionary dictionary = memory.Reserve(options.num_centroids);
    UpdateDictionary(keys.Rows(task * chunk, chunk), values.Rows(task * chunk, chunk), options, dictionary,
                     context.pool.memory());
    memory.Commit(dictionary);
  });
  for (OvqState* state : states) state->pending.DropBefore(state->pending.end());
}

void OvqMixer::SubtractPredictions(absl::Span<OvqState* const> states, MatrixView<const float> keys,
                                   MatrixView<float> values, ExecutionContext& context) const {
  const Scratch::Scope scope(context.scratch);
  const int64_t chunk = spec_.chunk_len();
  const MatrixView<float> predicted = context.scratch.Matrix(values.rows, values.cols);
  std::pmr::vector<KeyValueSegment> dictionaries(context.pool.memory());
  for (const OvqState* state : states) {
    for (const OvqMemory& memory : state->heads) dictionaries.push_back(Readout(memory));
  }
  std::pmr::vector<AttentionHead> work(context.pool.memory());
  std::pmr::vector<int64_t> rows(context.pool.memory());  // where each head's chunk begins
  for (size_t task = 0; task < dictionaries.size(); ++task) {
    if (dictionaries[task].count == 0) continue;
    rows.push_back(static_cast<int64_t>(task) * chunk);
    AttentionHead head;
    head.queries = keys.Rows(rows.back(), chunk);
    head.out = predicted.Rows(rows.back(), chunk);
    head.segments = {&dictionaries[task], 1};
    head.state_scale = scales_[task % num_heads()];
    work.push_back(head);
  }
  SlotAttention(work, context.pool);
  context.pool.ParallelFor(static_cast<int64_t>(rows.size()), [&](int64_t i) {
    AddScaled(values.Rows(rows[i], chunk), -1, predicted.Rows(rows[i], chunk));
  });
}

}  // namespace

std::unique_ptr<Mixer> NewOvqMixer(const OvqSpec& spec, int64_t width, const LayerWeights& weights, DType state) {
  return std::make_unique<OvqMixer>(spec, width, weights, state);
}

}  // namespace kvm
