#ifndef KVM_MODEL_MIXERS_QKV_PROJECTION_H_
#define KVM_MODEL_MIXERS_QKV_PROJECTION_H_

// From a layer's input to queries, keys and values: the part that all attention-style mixers share. Projections, value
// residual, token shift and, for most of them, per-head layer norm and rotary embedding, in that order.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kvm/kernels/cpu/matmul.h"
#include "kvm/kernels/dtype.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/kernels/matrix_view.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/layer_weights.h"
#include "kvm/state/state_fields.h"

namespace kvm {

// What token shifts remember of a sequence: the last row of each shifted quantity, before its shift.
struct ShiftHistory {
  std::vector<float> q, k, v;  // [H·dk], [Hk·dk], [Hk·dv]; empty without token shift
  std::vector<float> x;        // the mixer's input [D]

  int64_t ByteSize() const { return static_cast<int64_t>((q.size() + k.size() + v.size() + x.size()) * sizeof(float)); }
  // att_{q,k,v,x}_final_token, each [1, channels].
  void Export(std::vector<NamedTensor>* tensors) const;
  // "q", "k", "v", "x", each [channels]. Restore takes them over into a history of the same projection.
  void Save(const StateWriter& out) const;
  absl::Status Restore(const StateReader& in);
};

// The rows of one sequence.
struct ProjectionRows {
  int64_t first_row = 0;
  int64_t num_tokens = 0;  // >= 1
  int64_t position = 0;    // of the first of them
  ShiftHistory* history = nullptr;
};

class QkvProjection {
 public:
  // Loads c_q, c_k, c_v, c_proj, ln_q, ln_k and whatever the value residual and token shift need.
  QkvProjection(const ProjectionSpec& spec, int64_t width, StackSpec::TableType rotary_table,
                const LayerWeights& weights);

  // Ends with the token shift: no layer norm, no rotary embedding.
  QkvProjection(const ProjectionSpec& spec, int64_t width, const LayerWeights& weights);

  const HeadSizes& heads() const { return heads_; }
  int64_t q_width() const { return heads_.num_heads * heads_.qk_dim; }
  int64_t k_width() const { return heads_.num_kv_heads * heads_.qk_dim; }
  int64_t v_width() const { return heads_.num_kv_heads * heads_.v_dim; }
  int64_t out_width() const { return heads_.num_heads * heads_.v_dim; }

  ShiftHistory NewHistory() const;

  // x [n, D], anchor [n, v_width] (empty without value residual) → q [n, q_width], k [n, k_width], v [n, v_width].
  // Histories are moved on.
  void Project(MatrixView<const float> x, MatrixView<const float> anchor, absl::Span<const ProjectionRows> sequences,
               MatrixView<float> q, MatrixView<float> k, MatrixView<float> v, ExecutionContext& context) const;

  // The value projection alone, as an anchor for value residuals.
  void AnchorValues(MatrixView<const float> x0, MatrixView<float> out, ExecutionContext& context) const;

  // attended [n, out_width] → out [n, D].
  void Output(MatrixView<const float> attended, MatrixView<float> out, ExecutionContext& context) const;

  int64_t WeightByteSize() const;

 private:
  struct LayerNormWeights {
    WeightVector weight, bias;
  };

  // v += (anchor − v) ⊙ σ(v_gate0 + v_gate2·(v_gate1·x)).
  void GatedValueResidual(MatrixView<const float> x, MatrixView<const float> anchor, MatrixView<float> v,
                          ExecutionContext& context) const;
  void Shift(MatrixView<const float> x, absl::Span<const ProjectionRows> sequences,
             std::vector<float> ShiftHistory::*history, absl::Span<const float> mix, MatrixView<float> out,
             ExecutionContext& context) const;
  void NormalizeAndRotate(absl::Span<const ProjectionRows> sequences, MatrixView<float> q, MatrixView<float> k,
                          ExecutionContext& context) const;

  HeadSizes heads_;
  int64_t width_;
  ProjectionSpec::ValueResidual value_residual_;
  bool token_shift_;
  DType rotary_table_ = DType::kF32;
  std::vector<float> rotary_frequencies_;
  PackedMatrix c_q_, c_k_, c_v_, c_proj_, v_gate1_, v_gate2_;
  LayerNormWeights ln_q_, ln_k_;  // empty for none
  WeightVector x_q_, x_k_, x_v_, x_gate_, v_gate0_;
  float lamb_ = 0;
};

}  // namespace kvm

#endif  // KVM_MODEL_MIXERS_QKV_PROJECTION_H_
