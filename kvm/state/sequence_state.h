#ifndef KVM_STATE_SEQUENCE_STATE_H_
#define KVM_STATE_SEQUENCE_STATE_H_

// Everything a stack remembers of one sequence. It cannot be rewound: fork it before trying a continuation.

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvm/kernels/tensor.h"
#include "kvm/kernels/thread_pool.h"
#include "kvm/state/layer_state.h"
#include "kvm/state/state_fields.h"

namespace kvm {

// More tokens than any sequence takes, yet far from overflow.
inline constexpr int64_t kMaxPosition = int64_t{1} << 48;

// Thread-compatible. Moves cheaply; copies only through Fork().
class SequenceState {
 public:
  SequenceState() = default;
  // `stack_id` tells states of different stacks apart. No layer is null.
  SequenceState(uint64_t stack_id, std::vector<std::unique_ptr<LayerState>> layers);
  SequenceState(SequenceState&&) = default;
  SequenceState& operator=(SequenceState&&) = default;

  // Tokens taken so far: the position of the next one.
  int64_t position() const { return position_; }

  uint64_t stack_id() const { return stack_id_; }
  int64_t num_layers() const { return static_cast<int64_t>(layers_.size()); }
  const LayerState& layer(int64_t i) const { return *layers_[i]; }

  // Whether a call that failed left some layers ahead of others. Such a sequence is good for nothing but to be
  // destroyed: models, snapshots and stores refuse it, and so are its forks.
  bool broken() const { return broken_; }
  // FailedPrecondition that says so when broken().
  absl::Status CheckWhole() const;

  // An independent copy that shares memory until one side changes: cheap. The two may be used on two threads at once.
  SequenceState Fork() const;

  // Makes what forks share its own now, rather than when it is next extended. std::bad_alloc leaves it as it was.
  void Unshare();

  // Bytes of memory that hold the past, whether forks share them or not.
  int64_t ByteSize() const;

  // Rows of compressed state in the layer that has most.
  int64_t NumRows() const;

  // Everything the state consists of: "position", and per layer "layer.I.…" (LayerState::Save). Errors as that and
  // CheckWhole; what `out` has been given is then of no use.
  absl::Status Save(const StateWriter& out) const;

  // Takes over what Save() wrote of a sequence of the same stack; this one must be new. Errors as LayerState::Restore,
  // ResourceExhausted when there is no memory, and this sequence is broken() from then on. What `in` has besides is for
  // its owner to refuse, with StateReader::Finish. With a `pool` layers are restored on its threads.
  absl::Status Restore(const StateReader& in, ThreadPool* pool = nullptr);

  // The complete state as tensors: what each layer exports as "cache.I.NAME", and "cache.I.seen_tokens" []. Errors as
  // LayerState::Export and CheckWhole.
  absl::StatusOr<std::vector<NamedTensor>> Export() const;

 private:
  friend class SequenceAccess;

  uint64_t stack_id_ = 0;
  int64_t position_ = 0;
  bool broken_ = false;
  std::vector<std::unique_ptr<LayerState>> layers_;
};

// How a model and its engine change a sequence. Nobody else has reason to.
class SequenceAccess {
 public:
  // What the engine that made the sequence remembers for layer i, to be written to.
  static LayerState& Layer(SequenceState& sequence, int64_t i) { return *sequence.layers_[i]; }

  static void SetStackId(SequenceState& sequence, uint64_t stack_id) { sequence.stack_id_ = stack_id; }

  // From BeginPass on the sequence is broken(), until EndPass says that all layers have taken in `tokens` more.
  static void BeginPass(SequenceState& sequence) { sequence.broken_ = true; }
  static void EndPass(SequenceState& sequence, int64_t tokens) {
    sequence.position_ += tokens;
    sequence.broken_ = false;
  }
};

}  // namespace kvm

#endif  // KVM_STATE_SEQUENCE_STATE_H_
