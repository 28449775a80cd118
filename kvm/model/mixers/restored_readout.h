#ifndef KVM_MODEL_MIXERS_RESTORED_READOUT_H_
#define KVM_MODEL_MIXERS_RESTORED_READOUT_H_

// Readout rows follow from the sums beside them. A file has both, and may have been made by anybody.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvm/kernels/cpu/slot_update.h"
#include "kvm/kernels/slot_rows.h"

namespace kvm {

// How a layer derives readout rows from sums: a copy, so that states need no model.
struct ReadoutRule {
  std::vector<float> norm_weight;  // of ln_s_k [qk_dim]
  std::vector<float> norm_bias;    // [qk_dim]
  ValueReadout value = ValueReadout::kRadius;

  MemoryKeyNorm norm() const { return {norm_weight, norm_bias}; }
};

// Replaces the readout keys and values that do not belong to their sums by those that do, and leaves all others as they
// are, to the bit: they may differ by what another instruction set rounds otherwise, or by one step of their dtype.
// Returns how many were replaced. `rows` may have any finite numbers: InvalidArgument naming the row for radii that
// cannot be and for sums too large to be read.
absl::StatusOr<int64_t> CorrectReadout(const ReadoutRule& rule, SlotRows& rows);

}  // namespace kvm

#endif  // KVM_MODEL_MIXERS_RESTORED_READOUT_H_
