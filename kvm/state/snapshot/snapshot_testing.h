#ifndef KVM_STATE_SNAPSHOT_SNAPSHOT_TESTING_H_
#define KVM_STATE_SNAPSHOT_SNAPSHOT_TESTING_H_

// Sessions for tests, made of counting numbers.

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kvm/state/mixer_state.h"
#include "kvm/state/model_identity.h"
#include "kvm/state/sequence_state.h"
#include "kvm/state/snapshot/session.h"

namespace kvm {

// Remembers rows of three floats and a mark of one byte for each.
class RowsState : public MixerState {
 public:
  RowsState() = default;
  RowsState(int64_t count, float first);

  std::unique_ptr<MixerState> Clone() const override { return std::make_unique<RowsState>(*this); }
  int64_t ByteSize() const override { return static_cast<int64_t>(rows.size() * sizeof(float) + marks.size()); }
  void Save(const StateWriter& out) const override;
  absl::Status Restore(const StateReader& in, int64_t position) override;
  std::vector<NamedTensor> Export() const override { return {}; }
  int64_t NumRows() const override { return static_cast<int64_t>(marks.size()); }
  StateCoverage Coverage() const override { return {{0, NumRows()}, {1, 2}}; }

  std::vector<float> rows;
  std::vector<int8_t> marks;
};

// A new sequence of two layers.
SequenceState FreshSequence();

// A sequence of two layers that took in `tokens` tokens and has `rows` rows in its first layer, and all that goes with
// it; different for every `variant`.
Session TestSession(int variant, int64_t tokens, int64_t rows);

ModelIdentity TestIdentity();

// Whether all of the sessions is the same, to the bit.
bool AreEqual(const Session& a, const Session& b);

}  // namespace kvm

#endif  // KVM_STATE_SNAPSHOT_SNAPSHOT_TESTING_H_
