#include "kvm/state/host_layer_state.h"

#include <utility>

#include "kvm/base/status_macros.h"

namespace kvm {

int64_t HostLayerState::ByteSize() const {
  const auto shifts = static_cast<int64_t>((mlp_shift.size() + anchor_shift.size()) * sizeof(float));
  return shifts + (mixer ? mixer->ByteSize() : 0);
}

absl::Status HostLayerState::Save(const StateWriter& out) const {
  if (mixer) mixer->Save(out.Part("mixer"));
  out.Floats("mlp_shift", mlp_shift);
  out.Floats("anchor_shift", anchor_shift);
  return absl::OkStatus();
}

absl::Status HostLayerState::Restore(const StateReader& in, int64_t position) {
  if (mixer) RETURN_IF_ERROR(mixer.Mutable().Restore(in.Part("mixer"), position));
  RETURN_IF_ERROR(in.Floats("mlp_shift", absl::MakeSpan(mlp_shift)));
  return in.Floats("anchor_shift", absl::MakeSpan(anchor_shift));
}

absl::StatusOr<std::vector<NamedTensor>> HostLayerState::Export() const {
  std::vector<NamedTensor> tensors;
  if (mixer) tensors = mixer->Export();
  const auto add_row = [&](const char* name, const std::vector<float>& row) {
    if (row.empty()) return;
    tensors.push_back({name, Tensor::FromFloats({1, static_cast<int64_t>(row.size())}, row)});
  };
  add_row("mlp_final_token", mlp_shift);
  add_row("anchor_final_token", anchor_shift);
  return tensors;
}

SequenceState NewHostSequence(uint64_t stack_id, std::vector<HostLayerState> layers) {
  std::vector<std::unique_ptr<LayerState>> states;
  states.reserve(layers.size());
  for (HostLayerState& layer : layers) states.push_back(std::make_unique<HostLayerState>(std::move(layer)));
  return SequenceState(stack_id, std::move(states));
}

HostLayerState& HostLayer(SequenceState& sequence, int64_t i) {
  return static_cast<HostLayerState&>(SequenceAccess::Layer(sequence, i));
}

const HostLayerState& HostLayer(const SequenceState& sequence, int64_t i) {
  return static_cast<const HostLayerState&>(sequence.layer(i));
}

}  // namespace kvm
