#ifndef KVM_STATE_HOST_LAYER_STATE_H_
#define KVM_STATE_HOST_LAYER_STATE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kvm/state/copy_on_write.h"
#include "kvm/state/layer_state.h"
#include "kvm/state/mixer_state.h"
#include "kvm/state/sequence_state.h"

namespace kvm {

// The state of a layer in host memory. Copies share the mixer's memory until one of them is written to.
class HostLayerState : public LayerState {
 public:
  std::unique_ptr<LayerState> Clone() const override { return std::make_unique<HostLayerState>(*this); }
  void Unshare() override {
    if (mixer) mixer.Mutable();
  }
  int64_t ByteSize() const override;
  // "mixer.…" (MixerState::Save), "mlp_shift" and "anchor_shift". Never fails.
  absl::Status Save(const StateWriter& out) const override;
  absl::Status Restore(const StateReader& in, int64_t position) override;
  // What the mixer exports, then "mlp_final_token" [1, D] and "anchor_final_token" [1, D]. Never fails.
  absl::StatusOr<std::vector<NamedTensor>> Export() const override;
  int64_t NumRows() const override { return mixer ? mixer->NumRows() : 0; }
  StateCoverage Coverage() const override { return mixer ? mixer->Coverage() : StateCoverage(); }

  CopyOnWrite<MixerState> mixer;
  std::vector<float> mlp_shift;     // the MLP's last normed input [D]; empty without token shift there
  std::vector<float> anchor_shift;  // the value anchor's last input [D]; empty unless an anchor that shifts
};

// A sequence without tokens whose layers are these. `stack_id` as SequenceState's.
SequenceState NewHostSequence(uint64_t stack_id, std::vector<HostLayerState> layers);

// Layer i of a sequence that NewHostSequence made. Writing through the first is for whoever owns the sequence's engine
// (SequenceAccess).
HostLayerState& HostLayer(SequenceState& sequence, int64_t i);
const HostLayerState& HostLayer(const SequenceState& sequence, int64_t i);

}  // namespace kvm

#endif  // KVM_STATE_HOST_LAYER_STATE_H_
