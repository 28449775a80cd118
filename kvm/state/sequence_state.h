#ifndef KVM_STATE_SEQUENCE_STATE_H_
#define KVM_STATE_SEQUENCE_STATE_H_

// Everything a stack remembers of one sequence. It cannot be rewound: fork it before trying a continuation.

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kvm/state/mixer_state.h"

namespace kvm {

struct LayerState {
  std::unique_ptr<MixerState> mixer;
  std::vector<float> mlp_shift;     // the MLP's last normed input [D]; empty without token shift there
  std::vector<float> anchor_shift;  // the value anchor's last input [D]; empty unless this layer is an anchor that shifts
};

// Thread-compatible. Moves cheaply; copies only through Fork().
class SequenceState {
 public:
  SequenceState() = default;
  explicit SequenceState(std::vector<LayerState> layers) : layers_(std::move(layers)) {}
  SequenceState(SequenceState&&) = default;
  SequenceState& operator=(SequenceState&&) = default;

  // Tokens taken so far: the position of the next one.
  int64_t position() const { return position_; }
  void Advance(int64_t tokens) { position_ += tokens; }

  int64_t num_layers() const { return static_cast<int64_t>(layers_.size()); }
  LayerState& layer(int64_t i) { return layers_[i]; }
  const LayerState& layer(int64_t i) const { return layers_[i]; }

  // An independent copy.
  SequenceState Fork() const;

  int64_t ByteSize() const;

 private:
  int64_t position_ = 0;
  std::vector<LayerState> layers_;
};

}  // namespace kvm

#endif  // KVM_STATE_SEQUENCE_STATE_H_
