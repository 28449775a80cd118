#include "kvm/model/mixers/qkv_mixer.h"

#include <cmath>

namespace kvm {

void QkvMixer::Extend(MatrixView<const float> x, MatrixView<const float> anchor,
                      absl::Span<const SequenceRows> sequences, MatrixView<float> out,
                      ExecutionContext& context) const {
  const Scratch::Scope scope(context.scratch);
  QkvRows rows;
  rows.x = x;
  rows.q = context.scratch.Matrix(x.rows, projection_.q_width());
  rows.k = context.scratch.Matrix(x.rows, projection_.k_width());
  rows.v = context.scratch.Matrix(x.rows, projection_.v_width());
  std::pmr::vector<ProjectionRows> projected(context.pool.memory());
  projected.reserve(sequences.size());
  for (const SequenceRows& s : sequences) {
    projected.push_back({s.first_row, s.num_tokens, s.position, &static_cast<QkvState*>(s.state)->history});
  }
  projection_.Project(x, anchor, projected, rows.q, rows.k, rows.v, context);
  const MatrixView<float> attended = context.scratch.Matrix(x.rows, projection_.out_width());
  Attend(rows, sequences, attended, context);
  projection_.Output(attended, out, context);
}

void QkvMixer::AttendHeads(const QkvRows& rows, absl::Span<const SequenceRows> pieces, const HeadOptions& options,
                           absl::FunctionRef<void(const SequenceRows&, int64_t, Segments*)> list,
                           MatrixView<float> attended, ExecutionContext& context) const {
  const HeadSizes& heads = projection_.heads();
  const int64_t group = heads.num_heads / heads.num_kv_heads;
  const float scale = 1 / std::sqrt(static_cast<float>(heads.qk_dim));
  std::pmr::vector<Segments> segments(pieces.size() * heads.num_kv_heads, context.pool.memory());
  std::pmr::vector<AttentionHead> work(context.pool.memory());
  work.reserve(pieces.size() * heads.num_heads);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const SequenceRows& p = pieces[i];
    const auto head_columns = [&p](const auto& m, int64_t h, int64_t dim) {
      return m.Rows(p.first_row, p.num_tokens).Cols(h * dim, dim);
    };
    Segments* const of_piece = &segments[i * heads.num_kv_heads];
    for (int64_t h = 0; h < heads.num_kv_heads; ++h) list(p, h, &of_piece[h]);
    for (int64_t h = 0; h < heads.num_heads; ++h) {
      AttentionHead head;
      head.queries = head_columns(rows.q, h, heads.qk_dim);
      if (options.state_q.rows > 0) head.state_queries = head_columns(options.state_q, h, heads.qk_dim);
      head.out = head_columns(attended, h, heads.v_dim);
      head.segments = of_piece[h / group];
      head.first_position = p.position;
      head.span = options.span;
      head.state_scale = options.state_scales.empty() ? scale : options.state_scales[h];
      head.window_scale = options.window_scales.empty() ? scale : options.window_scales[h];
      work.push_back(head);
    }
  }
  SlotAttention(work, context.pool);
}

}  // namespace kvm
