#include "kvm/state/sequence_state.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvm/base/check.h"
#include "kvm/base/status_macros.h"

namespace kvm {

SequenceState::SequenceState(uint64_t stack_id, std::vector<std::unique_ptr<LayerState>> layers)
    : stack_id_(stack_id), layers_(std::move(layers)) {
  for (const std::unique_ptr<LayerState>& layer : layers_) Check(layer != nullptr, "layers that are not null");
}

absl::Status SequenceState::CheckWhole() const {
  if (!broken_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the sequence was left half changed by a call that failed behind its first ", position_,
                   " tokens; expected a whole one: go back to a fork or snapshot of it, or begin anew"));
}

SequenceState SequenceState::Fork() const {
  SequenceState copy;
  copy.stack_id_ = stack_id_;
  copy.position_ = position_;
  copy.broken_ = broken_;
  copy.layers_.reserve(layers_.size());
  for (const std::unique_ptr<LayerState>& layer : layers_) copy.layers_.push_back(layer->Clone());
  return copy;
}

void SequenceState::Unshare() {
  for (const std::unique_ptr<LayerState>& layer : layers_) layer->Unshare();
}

int64_t SequenceState::ByteSize() const {
  int64_t bytes = 0;
  for (const std::unique_ptr<LayerState>& layer : layers_) bytes += layer->ByteSize();
  return bytes;
}

int64_t SequenceState::NumRows() const {
  int64_t rows = 0;
  for (const std::unique_ptr<LayerState>& layer : layers_) rows = std::max(rows, layer->NumRows());
  return rows;
}

absl::Status SequenceState::Save(const StateWriter& out) const {
  RETURN_IF_ERROR(CheckWhole());
  out.Number("position", position_);
  for (int64_t i = 0; i < num_layers(); ++i) RETURN_IF_ERROR(layers_[i]->Save(out.Part(absl::StrCat("layer.", i))));
  return absl::OkStatus();
}

absl::Status SequenceState::Restore(const StateReader& in, ThreadPool* pool) {
  CheckEq(position_, 0, "tokens taken in before");
  broken_ = true;
  ASSIGN_OR_RETURN(position_, in.Number("position", 0, kMaxPosition));
  std::vector<absl::Status> restored(layers_.size());
  // Nothing may be thrown on a thread of the pool.
  const auto restore = [&](int64_t i) {
    try {
      restored[i] = layers_[i]->Restore(in.Part(absl::StrCat("layer.", i)), position_);
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
  broken_ = false;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<NamedTensor>> SequenceState::Export() const {
  RETURN_IF_ERROR(CheckWhole());
  std::vector<NamedTensor> tensors;
  for (int64_t i = 0; i < num_layers(); ++i) {
    const std::string prefix = absl::StrCat("cache.", i, ".");
    ASSIGN_OR_RETURN(std::vector<NamedTensor> of_layer, layers_[i]->Export());
    for (NamedTensor& t : of_layer) tensors.push_back({prefix + t.name, std::move(t.tensor)});
    tensors.push_back({prefix + "seen_tokens", Tensor::FromInts({}, {position_})});
  }
  return tensors;
}

}  // namespace kvm
