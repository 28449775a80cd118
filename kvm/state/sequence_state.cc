#include "kvm/state/sequence_state.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace kvm {

SequenceState SequenceState::Fork() const {
  SequenceState copy;
  copy.stack_id_ = stack_id_;
  copy.position_ = position_;
  copy.layers_.reserve(layers_.size());
  for (const LayerState& layer : layers_) {
    copy.layers_.push_back({layer.mixer ? layer.mixer->Clone() : nullptr, layer.mlp_shift, layer.anchor_shift});
  }
  return copy;
}

int64_t SequenceState::ByteSize() const {
  int64_t bytes = 0;
  for (const LayerState& layer : layers_) {
    if (layer.mixer) bytes += layer.mixer->ByteSize();
    bytes += static_cast<int64_t>((layer.mlp_shift.size() + layer.anchor_shift.size()) * sizeof(float));
  }
  return bytes;
}

std::vector<NamedTensor> SequenceState::Export() const {
  std::vector<NamedTensor> tensors;
  for (int64_t i = 0; i < num_layers(); ++i) {
    const std::string prefix = absl::StrCat("cache.", i, ".");
    const LayerState& layer = layers_[i];
    if (layer.mixer) {
      for (NamedTensor& t : layer.mixer->Export()) tensors.push_back({prefix + t.name, std::move(t.tensor)});
    }
    const auto add_row = [&](const char* name, const std::vector<float>& row) {
      if (row.empty()) return;
      tensors.push_back({prefix + name, Tensor::FromFloats({1, static_cast<int64_t>(row.size())}, row)});
    };
    add_row("mlp_final_token", layer.mlp_shift);
    add_row("anchor_final_token", layer.anchor_shift);
    tensors.push_back({prefix + "seen_tokens", Tensor::FromInts({}, {position_})});
  }
  return tensors;
}

}  // namespace kvm
