#ifndef KVM_MODEL_MIXERS_QKV_MIXER_H_
#define KVM_MODEL_MIXERS_QKV_MIXER_H_

// The mixers whose heads attend with queries to keys and values. They differ in what they keep of these; around it all
// do the same: project, attend, project back. That is here.

#include <cstdint>
#include <memory_resource>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "kvm/kernels/cpu/slot_attention.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/kernels/key_value.h"
#include "kvm/kernels/matrix_view.h"
#include "kvm/model/mixers/mixer.h"
#include "kvm/model/mixers/qkv_projection.h"
#include "kvm/state/mixer_state.h"

namespace kvm {

// The state of a QkvMixer: the derived class adds the keys and values that it keeps.
class QkvState : public MixerState {
 public:
  explicit QkvState(ShiftHistory shift_history) : history(std::move(shift_history)) {}

  ShiftHistory history;
};

// What a batch was projected to, a row a token.
struct QkvRows {
  MatrixView<const float> x;  // [n, D], the mixer's input
  MatrixView<float> q, k, v;  // [n, q_width], [n, k_width], [n, v_width]
};

// How heads attend.
struct HeadOptions {
  // [n, q_width]: what state segments are asked with; no rows: the same queries as the window.
  MatrixView<const float> state_q;
  int64_t span = kUnlimitedSpan;  // positions that a query sees in the window, its own included
  // Of each query head, as AttentionHead has them; empty: 1/sqrt(qk_dim).
  absl::Span<const float> state_scales, window_scales;
};

class QkvMixer : public Mixer {
 public:
  void Extend(MatrixView<const float> x, MatrixView<const float> anchor, absl::Span<const SequenceRows> sequences,
              MatrixView<float> out, ExecutionContext& context) const final;
  void AnchorValues(MatrixView<const float> x0, absl::Span<const AnchorRows>, MatrixView<float> out,
                    ExecutionContext& context) const final {
    projection_.AnchorValues(x0, out, context);
  }
  int64_t value_width() const final { return projection_.v_width(); }
  int64_t WeightByteSize() const override { return projection_.WeightByteSize(); }

 protected:
  using Segments = std::pmr::vector<KeyValueSegment>;

  explicit QkvMixer(QkvProjection projection) : projection_(std::move(projection)) {}

  // Moves the sequences' states on by their rows and writes what the heads attended to: attended [n, out_width].
  // `rows` may be changed.
  virtual void Attend(const QkvRows& rows, absl::Span<const SequenceRows> sequences, MatrixView<float> attended,
                      ExecutionContext& context) const = 0;

  // Attends with all heads of all pieces at once. list(piece, h, segments) appends what queries of the piece see of
  // key/value head h, which the query heads of a group share; it is called for each piece and head in order.
  void AttendHeads(const QkvRows& rows, absl::Span<const SequenceRows> pieces, const HeadOptions& options,
                   absl::FunctionRef<void(const SequenceRows& piece, int64_t h, Segments* segments)> list,
                   MatrixView<float> attended, ExecutionContext& context) const;

  const QkvProjection& projection() const { return projection_; }

 private:
  QkvProjection projection_;
};

}  // namespace kvm

#endif  // KVM_MODEL_MIXERS_QKV_MIXER_H_
