#ifndef KVM_STATE_LAYER_STATE_H_
#define KVM_STATE_LAYER_STATE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvm/kernels/tensor.h"
#include "kvm/state/mixer_state.h"
#include "kvm/state/state_fields.h"

namespace kvm {

// What one layer remembers of one sequence: its mixer's memory and the rows that token shifts look back at. Each engine
// has its own derived class, as it decides where the bytes lie. Thread-compatible.
class LayerState {
 public:
  virtual ~LayerState() = default;

  // An independent copy. It may share memory with this one until either is written to.
  virtual std::unique_ptr<LayerState> Clone() const = 0;

  // Copies what is shared with other copies now, rather than when it is next written to. std::bad_alloc leaves it as it
  // was.
  virtual void Unshare() = 0;

  // Bytes of the engine's memory that hold the past, whether copies share them or not.
  virtual int64_t ByteSize() const = 0;

  // Bytes of the tensors that Save() writes.
  virtual int64_t SavedByteSize() const { return ByteSize(); }

  // Everything the state consists of, in the layout of host memory wherever it lies: that of HostLayerState, so that
  // snapshots are the same files for every engine that computes the same function. What `out` is given lives until this
  // state changes. Errors are the device's.
  virtual absl::Status Save(const StateWriter& out) const = 0;

  // Takes over what Save() wrote of a layer of the same stack after `position` tokens. This state must be new. The
  // fields may come from a hostile file (MixerState::Restore). InvalidArgument for fields that are missing or cannot
  // be; this state is then good for nothing but to be destroyed.
  virtual absl::Status Restore(const StateReader& in, int64_t position) = 0;

  // The state as tensors, in canonical layouts and under the names of the published cache (docs/concepts.md). Errors
  // are the device's.
  virtual absl::StatusOr<std::vector<NamedTensor>> Export() const = 0;

  // Rows of compressed state (KVM: M); 0 for layers that have none.
  virtual int64_t NumRows() const { return 0; }

  virtual StateCoverage Coverage() const { return {}; }
};

}  // namespace kvm

#endif  // KVM_STATE_LAYER_STATE_H_
