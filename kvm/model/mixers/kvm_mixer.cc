#include "kvm/model/mixers/kvm_mixer.h"

#include <algorithm>
#include <cmath>
#include <memory_resource>
#include <utility>
#include <vector>

#include "kvm/kernels/cpu/pointwise/elementwise.h"
#include "kvm/kernels/cpu/slot_update.h"
#include "kvm/model/mixers/chunk_pieces.h"
#include "kvm/model/mixers/kvm_state.h"
#include "kvm/model/mixers/qkv_mixer.h"
#include "kvm/model/mixers/restored_readout.h"
#include "kvm/model/mixers/row_blocks.h"
#include "kvm/model/stack/model_options.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/state/slot_budget.h"

namespace kvm {
namespace {

KvmState& StateOf(const SequenceRows& rows) { return *static_cast<KvmState*>(rows.state); }

class KvmMixer : public QkvMixer {
 public:
  KvmMixer(const KvmSpec& spec, int64_t width, StackSpec::TableType rotary_table, const LayerWeights& weights,
           DType state, bool provenance);

  std::unique_ptr<MixerState> NewState() const override {
    return std::make_unique<KvmState>(projection().NewHistory(),
                                      KvmStateShape{window_shape_, spec_.window_chunks(), spec_.num_sinks(), has_gate(),
                                                    readout_dtype_, provenance_, readout_rule_});
  }
  int64_t WeightByteSize() const override { return QkvMixer::WeightByteSize() + key_weighting_.byte_size(); }

 protected:
  void Attend(const QkvRows& rows, absl::Span<const SequenceRows> sequences, MatrixView<float> attended,
              ExecutionContext& context) const override;

 private:
  bool has_gate() const { return spec_.gate_keys() || spec_.gate_values(); }
  MemoryKeyNorm memory_key_norm() const { return {ln_s_k_weight_, ln_s_k_bias_}; }
  ValueReadout value_readout() const { return spec_.use_radius() ? ValueReadout::kRadius : ValueReadout::kMean; }

  // Copies queries with the rotary channels of every head zeroed.
  void WithoutRotaryChannels(MatrixView<const float> queries, MatrixView<float> out) const;
  // Pieces are at most one of each sequence, and each lies in one chunk. Merge gates are [n, Hk], of the batch.
  // The states of all pieces that begin a chunk take in the chunk that leaves the window.
  void TakeOverflow(absl::Span<const SequenceRows> pieces, ExecutionContext& context) const;
  // Windows take in the pieces' tokens.
  void FillWindows(absl::Span<const SequenceRows> pieces, const QkvRows& rows, MatrixView<const float> gates) const;
  // The tokens of all pieces that lie in the first chunk become rows.
  void SeedFirstRows(absl::Span<const SequenceRows> pieces, const QkvRows& batch, MatrixView<const float> batch_gates,
                     ExecutionContext& context) const;
  // Gates as the state's kernels want them: empty spans for what is not gated.
  SlotTokens Gated(MatrixView<const float> keys, MatrixView<const float> values, absl::Span<const float> gates) const {
    return {keys, values, spec_.gate_keys() ? gates : absl::Span<const float>(),
            spec_.gate_values() ? gates : absl::Span<const float>()};
  }

  KvmSpec spec_;
  BlockWindowShape window_shape_;
  DType readout_dtype_;
  bool provenance_;
  std::vector<SlotBudget> budgets_;  // of each key/value head
  PackedMatrix key_weighting_;
  WeightVector ln_s_k_weight_, ln_s_k_bias_;
  std::shared_ptr<const ReadoutRule> readout_rule_;  // of the states
  std::vector<float> state_scales_, window_scales_;  // per query head: temperature / sqrt(dk)
};

KvmMixer::KvmMixer(const KvmSpec& spec, int64_t width, StackSpec::TableType rotary_table, const LayerWeights& weights,
                   DType state, bool provenance)
    : QkvMixer(QkvProjection(spec.projections(), width, rotary_table, weights)),
      spec_(spec),
      window_shape_{projection().heads().num_kv_heads, projection().heads().qk_dim, projection().heads().v_dim,
                    spec.chunk_len(), WindowDType(state)},
      readout_dtype_(state),
      provenance_(provenance),
      budgets_(ToHeadBudgets(spec)),
      ln_s_k_weight_(weights.Vector("ln_s_k.weight")),
      ln_s_k_bias_(weights.Vector("ln_s_k.bias")) {
  const MemoryKeyNorm norm = memory_key_norm();
  readout_rule_ = std::make_shared<const ReadoutRule>(
      ReadoutRule{{norm.weight.begin(), norm.weight.end()}, {norm.bias.begin(), norm.bias.end()}, value_readout()});
  if (has_gate()) key_weighting_ = weights.Matrix("key_weighting.weight");
  const HeadSizes& heads = projection().heads();
  state_scales_.assign(heads.num_heads, 1);
  window_scales_.assign(heads.num_heads, 1);
  if (spec.head_temperatures()) {
    state_scales_ = weights.Vector("state_head_temp");
    window_scales_ = weights.Vector("front_head_temp");
  }
  const float scale = 1 / std::sqrt(static_cast<float>(heads.qk_dim));
  for (float& s : state_scales_) s *= scale;
  for (float& s : window_scales_) s *= scale;
}

void KvmMixer::Attend(const QkvRows& rows, absl::Span<const SequenceRows> sequences, MatrixView<float> attended,
                      ExecutionContext& context) const {
  const Scratch::Scope scope(context.scratch);
  const int64_t n = rows.x.rows;
  HeadOptions options;
  options.state_scales = state_scales_;
  options.window_scales = window_scales_;
  if (spec_.separate_rotary()) {
    const MatrixView<float> state_q = context.scratch.Matrix(n, projection().q_width());
    ForRowBlocks(context.pool, n, [&](int64_t begin, int64_t count) {
      WithoutRotaryChannels(rows.q.Rows(begin, count), state_q.Rows(begin, count));
    });
    options.state_q = state_q;
  }
  MatrixView<float> gates;
  if (has_gate()) {
    gates = context.scratch.Matrix(n, window_shape_.num_heads);
    MatMul(rows.x, key_weighting_, gates, context.pool);
    ForRowBlocks(context.pool, n, [&](int64_t begin, int64_t count) { OnePlusElu(gates.Rows(begin, count)); });
  }
  ForChunkPieces(sequences, spec_.chunk_len(), context.pool.memory(), [&](absl::Span<const SequenceRows> pieces) {
    TakeOverflow(pieces, context);
    FillWindows(pieces, rows, gates);
    SeedFirstRows(pieces, rows, gates, context);
    AttendHeads(
        rows, pieces, options,
        [](const SequenceRows& p, int64_t h, Segments* segments) {
          const KvmState& state = StateOf(p);
          // While the window still holds everything, the state would only repeat it.
          if (state.window.begin() > 0) segments->push_back(state.heads[h].Readout());
          state.window.AppendSegments(h, segments);
        },
        attended, context);
  });
}

void KvmMixer::WithoutRotaryChannels(MatrixView<const float> queries, MatrixView<float> out) const {
  for (int64_t r = 0; r < queries.rows; ++r) {
    std::copy_n(queries.row(r), queries.cols, out.row(r));
    for (int64_t head = 0; head < queries.cols; head += projection().heads().qk_dim) {
      std::fill_n(out.row(r) + head, spec_.projections().rotary_dim(), 0.0f);
    }
  }
}

void KvmMixer::FillWindows(absl::Span<const SequenceRows> pieces, const QkvRows& rows,
                           MatrixView<const float> gates) const {
  for (const SequenceRows& p : pieces) {
    KvmState& state = StateOf(p);
    state.window.Append(rows.k.Rows(p.first_row, p.num_tokens), rows.v.Rows(p.first_row, p.num_tokens));
    for (int64_t r = p.first_row; r < p.first_row + p.num_tokens && has_gate(); ++r) {
      state.gates.insert(state.gates.end(), gates.row(r), gates.row(r) + gates.cols);
    }
  }
}

void KvmMixer::TakeOverflow(absl::Span<const SequenceRows> pieces, ExecutionContext& context) const {
  const int64_t chunk = spec_.chunk_len();
  const int64_t num_heads = window_shape_.num_heads;
  std::pmr::vector<const SequenceRows*> updates(context.pool.memory());
  for (const SequenceRows& p : pieces) {
    KvmState& state = StateOf(p);
    const bool begins_chunk = p.position % chunk == 0;
    const bool window_full = state.window.end() - state.window.begin() == chunk * spec_.window_chunks();
    if (!begins_chunk || !window_full) continue;
    // The first chunk is in the state already.
    if (state.window.begin() > 0) {
      updates.push_back(&p);
    } else {
      state.DropBefore(chunk);
    }
  }
  if (updates.empty()) return;

  const Scratch::Scope scope(context.scratch);
  const int64_t tasks = static_cast<int64_t>(updates.size()) * num_heads;
  const MatrixView<float> keys = context.scratch.Matrix(tasks * chunk, window_shape_.qk_dim);
  const MatrixView<float> values = context.scratch.Matrix(tasks * chunk, window_shape_.v_dim);
  const MatrixView<float> gates = context.scratch.Matrix(tasks, has_gate() ? chunk : 0);
  std::pmr::vector<SlotUpdateHead> heads(tasks, context.pool.memory());
  context.pool.ParallelFor(tasks, [&](int64_t task) {
    const SequenceRows& piece = *updates[task / num_heads];
    const int64_t h = task % num_heads;
    KvmState& state = StateOf(piece);
    const MatrixView<float> head_keys = keys.Rows(task * chunk, chunk);
    const MatrixView<float> head_values = values.Rows(task * chunk, chunk);
    state.window.Read(h, state.window.begin(), chunk, head_keys, head_values);
    MemoryKeys(head_keys, spec_.projections().rotary_dim(), memory_key_norm(), head_keys);
    for (int64_t i = 0; i < gates.cols; ++i) gates.row(task)[i] = state.gates[i * num_heads + h];

    const int64_t present = state.heads[h].count();
    const int64_t available = state.covered + chunk;
    const int64_t target = TargetRows(budgets_[h], piece.position, available, chunk, present);
    SlotUpdateOptions& options = heads[task].options;
    options.num_sinks = spec_.num_sinks();
    options.num_appends = std::min(target - present, chunk);
    options.gate_appends = spec_.gate_appended_rows();
    options.readout = value_readout();
    options.append_below = static_cast<float>(budgets_[h].append_below);
    options.second_merge = static_cast<float>(spec_.second_merge());
    options.merge_decay = static_cast<float>(spec_.merge_decay());
    heads[task].tokens = Gated(head_keys, head_values, gates.row_span(task));
    heads[task].norm = memory_key_norm();
    heads[task].rows = state.heads[h].Reserve(options.num_appends);
  });
  const std::pmr::vector<SlotRoutes> routes = RouteTokens(heads, context.pool.memory(), context.pool);
  ApplyRoutes(absl::MakeSpan(heads), routes, context.pool);
  for (int64_t task = 0; task < tasks; ++task) {
    KvmState& state = StateOf(*updates[task / num_heads]);
    const int64_t h = task % num_heads;
    state.heads[h].Commit(heads[task].rows);
    const std::pmr::vector<int64_t>& row_of = routes[task].row_of_token;
    if (provenance_) state.row_of_token[h].insert(state.row_of_token[h].end(), row_of.begin(), row_of.end());
  }
  for (const SequenceRows* p : updates) {
    KvmState& state = StateOf(*p);
    state.covered += chunk;
    state.DropBefore(state.window.begin() + chunk);
  }
}

void KvmMixer::SeedFirstRows(absl::Span<const SequenceRows> pieces, const QkvRows& batch,
                             MatrixView<const float> batch_gates, ExecutionContext& context) const {
  std::pmr::vector<const SequenceRows*> first(context.pool.memory());
  int64_t max_tokens = 0;
  for (const SequenceRows& p : pieces) {
    if (p.position >= spec_.chunk_len()) continue;
    first.push_back(&p);
    max_tokens = std::max(max_tokens, p.num_tokens);
  }
  if (first.empty()) return;

  const Scratch::Scope scope(context.scratch);
  const int64_t num_heads = window_shape_.num_heads;
  const int64_t tasks = static_cast<int64_t>(first.size()) * num_heads;
  const MatrixView<float> keys = context.scratch.Matrix(tasks * max_tokens, window_shape_.qk_dim);
  const MatrixView<float> gates = context.scratch.Matrix(tasks, has_gate() ? max_tokens : 0);
  context.pool.ParallelFor(tasks, [&](int64_t task) {
    const SequenceRows& piece = *first[task / num_heads];
    const int64_t h = task % num_heads;
    const auto head = [&](MatrixView<float> m, int64_t dim) {
      return m.Rows(piece.first_row, piece.num_tokens).Cols(h * dim, dim);
    };
    const MatrixView<float> head_keys = keys.Rows(task * max_tokens, piece.num_tokens);
    MemoryKeys(head(batch.k, window_shape_.qk_dim), spec_.projections().rotary_dim(), memory_key_norm(), head_keys);
    for (int64_t i = 0; i < piece.num_tokens && has_gate(); ++i)
      gates.row(task)[i] = batch_gates.row(piece.first_row + i)[h];
    const absl::Span<const float> head_gates(gates.row(task), has_gate() ? piece.num_tokens : 0);
    SlotMemory& memory = StateOf(piece).heads[h];
    SlotRows rows = memory.Reserve(piece.num_tokens);
    const int64_t first_row = rows.count;
    SeedRows(Gated(head_keys, head(batch.v, window_shape_.v_dim), head_gates), spec_.gate_initial_rows(),
             memory_key_norm(), value_readout(), rows, context.pool.memory());
    memory.Commit(rows);
    for (int64_t i = 0; i < piece.num_tokens && provenance_; ++i) {
      StateOf(piece).row_of_token[h].push_back(static_cast<int32_t>(first_row + i));
    }
  });
  for (const SequenceRows* p : first) StateOf(*p).covered += p->num_tokens;
}

}  // namespace

std::unique_ptr<Mixer> NewKvmMixer(const KvmSpec& spec, int64_t width, StackSpec::TableType rotary_table,
                                   const LayerWeights& weights, DType state, bool provenance) {
  return std::make_unique<KvmMixer>(spec, width, rotary_table, weights, state, provenance);
}

}  // namespace kvm
