#ifndef KVM_STATE_SEQUENCE_STATE_H_
#define KVM_STATE_SEQUENCE_STATE_H_

// Everything a stack remembers of one sequence. It cannot be rewound: fork it before trying a continuation.

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kvm/kernels/tensor.h"
#include "kvm/kernels/thread_pool.h"
#include "kvm/state/copy_on_write.h"
#include "kvm/state/mixer_state.h"
#include "kvm/state/state_fields.h"

namespace kvm {

// More tokens than any sequence takes, yet far from overflow.
inline constexpr int64_t kMaxPosition = int64_t{1} << 48;

struct LayerState {
  CopyOnWrite<MixerState> mixer;
  std::vector<float> mlp_shift;     // the MLP's last normed input [D]; empty without token shift there
  std::vector<float> anchor_shift;  // the value anchor's last input [D]; empty unless an anchor that shifts
};

// Thread-compatible. Moves cheaply; copies only through Fork().
class SequenceState {
 public:
  SequenceState() = default;
  // `stack_id` tells states of different stacks apart.
  SequenceState(uint64_t stack_id, std::vector<LayerState> layers) : stack_id_(stack_id), layers_(std::move(layers)) {}
  SequenceState(SequenceState&&) = default;
  SequenceState& operator=(SequenceState&&) = default;

  // Tokens taken so far: the position of the next one.
  int64_t position() const { return position_; }
  void Advance(int64_t tokens) { position_ += tokens; }

  uint64_t stack_id() const { return stack_id_; }
  int64_t num_layers() const { return static_cast<int64_t>(layers_.size()); }
  LayerState& layer(int64_t i) { return layers_[i]; }
  const LayerState& layer(int64_t i) const { return layers_[i]; }

  // An independent copy that shares memory until one side changes: cheap. The two may be used on two threads at once.
  SequenceState Fork() const;

  // Bytes of memory that hold the past, whether forks share them or not.
  int64_t ByteSize() const;

  // Everything the state consists of: "position", and per layer "layer.I.mixer.…" (MixerState::Save),
  // "layer.I.mlp_shift" and "layer.I.anchor_shift". The tensors are ByteSize() bytes.
  void Save(const StateWriter& out) const;

  // Takes over what Save() wrote of a sequence of the same stack; this one must be new. Errors as MixerState::Restore,
  // ResourceExhausted when there is no memory, and this sequence is then good for nothing but to be destroyed. What
  // `in` has besides is for its owner to refuse, with StateReader::Finish. With a `pool` layers are restored on its
  // threads.
  absl::Status Restore(const StateReader& in, ThreadPool* pool = nullptr);

  // The complete state as tensors: what each layer's mixer exports as "cache.I.NAME", and "cache.I.mlp_final_token"
  // [1, D], "cache.I.anchor_final_token" [1, D], "cache.I.seen_tokens" [].
  std::vector<NamedTensor> Export() const;

 private:
  uint64_t stack_id_ = 0;
  int64_t position_ = 0;
  std::vector<LayerState> layers_;
};

}  // namespace kvm

#endif  // KVM_STATE_SEQUENCE_STATE_H_
