#ifndef KVM_MODEL_MIXERS_KVM_STATE_H_
#define KVM_MODEL_MIXERS_KVM_STATE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kvm/kernels/dtype.h"
#include "kvm/model/mixers/qkv_mixer.h"
#include "kvm/model/mixers/restored_readout.h"
#include "kvm/state/block_window.h"
#include "kvm/state/slot_memory.h"
#include "kvm/state/state_fields.h"

namespace kvm {

struct KvmStateShape {
  BlockWindowShape window;      // of blocks of one chunk
  int64_t window_chunks = 0;    // the most that the window holds
  int64_t num_sinks = 0;        // rows that take no merges
  bool gated = false;           // whether there are merge gates
  DType readout = DType::kF32;  // of rows as queries read them
  bool provenance = false;      // whether the row of every token is recorded
  // What a restored state's readout rows are held to; never null.
  std::shared_ptr<const ReadoutRule> readout_rule;
};

// What a KVM layer remembers of one sequence.
class KvmState : public QkvState {
 public:
  KvmState(ShiftHistory history, const KvmStateShape& shape);

  std::unique_ptr<MixerState> Clone() const override { return std::make_unique<KvmState>(*this); }
  int64_t ByteSize() const override;
  // "shift.…"; "window.…"; "gates" [L, Hk] of the window's positions; "covered", and "head.H.…" with the rows; with
  // provenance also "head.H.row_of_token" [covered].
  void Save(const StateWriter& out) const override;
  // Readout rows that do not belong to their sums are replaced by those that do.
  absl::Status Restore(const StateReader& in, int64_t position) override;
  // kvm_s_k [Hk, M, dk], kvm_s_v [Hk, M, dv], kvm_s_vlen [Hk, M, 1]: sums and radii; kvm_state_coverage_len []: tokens
  // in the state; kvm_bswa_begin []: the window's first position; kvm_bswa_k, kvm_bswa_v [Hk, L, d]: the window;
  // kvm_bswa_merge_gate [Hk, L, 1], ones without merge gate; and the shift histories.
  // When heads have different numbers of rows M is the largest, the rows that a head lacks are zero, and there is also
  // kvm_row_counts [Hk].
  std::vector<NamedTensor> Export() const override;
  // Of the head that has most.
  int64_t NumRows() const override;
  StateCoverage Coverage() const override { return {{0, covered}, {window.begin(), window.end()}}; }

  // The window gives up everything before `position`, its gates too.
  void DropBefore(int64_t position);

  BlockWindow window;
  std::vector<float> gates;       // merge gates of the window's positions [L, Hk]; empty without merge gate
  std::vector<SlotMemory> heads;  // one per key/value head
  int64_t covered = 0;            // tokens that the state has taken in
  // With provenance, of every head: the row that each of these tokens became or was added to [covered]. Rows never
  // move, so it holds for good.
  std::vector<std::vector<int32_t>> row_of_token;

 private:
  KvmStateShape shape_;
};

}  // namespace kvm

#endif  // KVM_MODEL_MIXERS_KVM_STATE_H_
