#ifndef KVM_MODEL_MIXERS_MIXER_H_
#define KVM_MODEL_MIXERS_MIXER_H_

// The token mixing part of a layer, behind one verb: Extend.

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/kernels/matrix_view.h"
#include "kvm/state/mixer_state.h"

namespace kvm {

// The rows that one sequence has in a batch.
struct SequenceRows {
  int64_t first_row = 0;
  int64_t num_tokens = 0;  // >= 1
  int64_t position = 0;    // of the first of them
  MixerState* state = nullptr;
};

// The rows of one sequence whose value anchor is wanted, with the history that the anchor keeps.
struct AnchorRows {
  int64_t first_row = 0;
  int64_t num_tokens = 0;
  std::vector<float>* shift = nullptr;  // the last x0 row before these [D]; zeros at the start. Empty for no shift.
};

// Immutable and thread-safe; what changes is in the states.
class Mixer {
 public:
  virtual ~Mixer() = default;

  // The state of a sequence without tokens.
  virtual std::unique_ptr<MixerState> NewState() const = 0;

  // Extends every sequence by its rows and leaves its state where these put it.
  //   x [n, D]: the layer's normed input; anchor [n, value_width()]: v_first, empty unless the spec has value residuals
  //   out [n, D]: what the layer adds to the residual stream
  // A row's result depends on its own sequence alone, and not on how the sequence was cut into calls.
  virtual void Extend(MatrixView<const float> x, MatrixView<const float> anchor,
                      absl::Span<const SequenceRows> sequences, MatrixView<float> out,
                      ExecutionContext& context) const = 0;

  // This layer's value projection, as an anchor for others (ValueResidual in stack.proto): x0 [n, D] is the normed
  // stack input, out [n, value_width()].
  virtual void AnchorValues(MatrixView<const float> x0, absl::Span<const AnchorRows> sequences, MatrixView<float> out,
                            ExecutionContext& context) const = 0;

  // Channels of the values, all heads together.
  virtual int64_t value_width() const = 0;

  // Whether AnchorValues looks at the row before.
  virtual bool anchor_shifts() const { return false; }

  // Bytes of the packed weights.
  virtual int64_t WeightByteSize() const = 0;
};

}  // namespace kvm

#endif  // KVM_MODEL_MIXERS_MIXER_H_
