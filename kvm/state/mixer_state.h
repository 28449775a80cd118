#ifndef KVM_STATE_MIXER_STATE_H_
#define KVM_STATE_MIXER_STATE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kvm/kernels/tensor.h"
#include "kvm/state/state_fields.h"

namespace kvm {

// Positions begin <= p < end.
struct PositionRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Where the past lies, for reports. Both are empty for a state of a fixed size, which all of the past went into.
struct StateCoverage {
  PositionRange rows;    // what the rows of compressed state have taken in
  PositionRange window;  // what is kept as it is, key by key (sinks aside); may overlap with `rows`
};

// What one mixer remembers of one sequence. Each mixer has its own derived class.
class MixerState {
 public:
  virtual ~MixerState() = default;

  virtual std::unique_ptr<MixerState> Clone() const = 0;

  // Bytes of memory that hold the past.
  virtual int64_t ByteSize() const = 0;

  // Everything the state consists of, as it lies in memory: the tensors are ByteSize() bytes.
  virtual void Save(const StateWriter& out) const = 0;

  // Takes over what Save() wrote of a state of the same mixer after `position` tokens. Afterwards both go on to the
  // same bits. This state must be new.
  //
  // The fields may come from a hostile file. Check every number that Extend indexes with against `position` and the
  // mixer's own shapes. Allocate nothing for a tensor before it was found in `in`. InvalidArgument for fields that are
  // missing or impossible; after an error this state can only be destroyed.
  virtual absl::Status Restore(const StateReader& in, int64_t position) = 0;

  // The complete state as tensors, in canonical layouts and under the names of the published cache (docs/concepts.md):
  // kvm_s_k [Hk, M, dk], rwkv7_time_mix [H, dk, dv], att_final_token [1, D], ...
  virtual std::vector<NamedTensor> Export() const = 0;

  // Rows of compressed state (KVM: M), 0 for mixers that have none.
  virtual int64_t NumRows() const { return 0; }

  virtual StateCoverage Coverage() const { return {}; }
};

}  // namespace kvm

#endif  // KVM_STATE_MIXER_STATE_H_
