#include "kvm/state/sequence_state.h"

#include <cassert>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvm/base/status_macros.h"

namespace kvm {

SequenceState SequenceState::Fork() const {
  SequenceState copy;
  copy.stack_id_ = stack_id_;
  copy.position_ = position_;
  copy.layers_ = layers_;
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

void SequenceState::Save(const StateWriter& out) const {
  out.Number("position", position_);
  for (int64_t i = 0; i < num_layers(); ++i) {
    const StateWriter part = out.Part(absl::StrCat("layer.", i));
    const LayerState& layer = layers_[i];
    if (layer.mixer) layer.mixer->Save(part.Part("mixer"));
    part.Floats("mlp_shift", layer.mlp_shift);
    part.Floats("anchor_shift", layer.anchor_shift);
  }
}

absl::Status SequenceState::Restore(const StateReader& in, ThreadPool* pool) {
  assert(position_ == 0);
  ASSIGN_OR_RETURN(position_, in.Number("position", 0, kMaxPosition));
  std::vector<absl::Status> restored(layers_.size());
  const auto restore_layer = [&](int64_t i) -> absl::Status {
    const StateReader part = in.Part(absl::StrCat("layer.", i));
    LayerState& layer = layers_[i];
    if (layer.mixer) RETURN_IF_ERROR(layer.mixer.Mutable().Restore(part.Part("mixer"), position_));
    RETURN_IF_ERROR(part.Floats("mlp_shift", absl::MakeSpan(layer.mlp_shift)));
    return part.Floats("anchor_shift", absl::MakeSpan(layer.anchor_shift));
  };
  // Nothing may be thrown on a thread of the pool.
  const auto restore = [&](int64_t i) {
    try {
      restored[i] = restore_layer(i);
    } catch (const std::bad_alloc&) {
      restored[i] = absl::ResourceExhaustedError(absl::StrCat("state layer.", i, ": there is no memory for it"));
    }
  };
  if (pool != nullptr) {
    pool->ParallelFor(num_layers(), restore);
  } else {
    for (int64_t i = 0; i < num_layers(); ++i) restore(i);
  }
  for (absl::Status& status : restored) RETURN_IF_ERROR(std::move(status));
  return absl::OkStatus();
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
