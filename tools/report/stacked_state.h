#ifndef KVM_TOOLS_REPORT_STACKED_STATE_H_
#define KVM_TOOLS_REPORT_STACKED_STATE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kvm/kernels/tensor.h"
#include "kvm/state/sequence_state.h"

namespace kvm {

// The states of sequences of one stack and equal length, each tensor stacked: [...] of a sequence becomes [B, ...].
// Scalars are the same for all of them and stay scalars. At least one sequence.
//
// Budgets that adapt give sequences different numbers of rows: tensors are padded with zeros to the largest, and
// kvm_row_counts [B, Hk] says how many rows are real, as soon as any head of a layer has fewer than the largest one.
absl::StatusOr<std::vector<NamedTensor>> StackStates(absl::Span<const SequenceState> sequences);

// Writes StackStates as a safetensors file.
absl::Status WriteStackedState(absl::Span<const SequenceState> sequences, const std::string& path);

}  // namespace kvm

#endif  // KVM_TOOLS_REPORT_STACKED_STATE_H_
