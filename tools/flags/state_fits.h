#ifndef KVM_TOOLS_FLAGS_STATE_FITS_H_
#define KVM_TOOLS_FLAGS_STATE_FITS_H_

// Whether the states of sequences fit in memory, before any is begun.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "kvm/kernels/dtype.h"
#include "kvm/model/stack/stack.pb.h"
#include "tools/cli/machine.h"

namespace kvm {

// ResourceExhausted, with both sizes, when the states of sequences of `tokens` tokens (at least one) are more than the
// `available` bytes; it names the chunk_len where the first block of chunks alone is.
absl::Status CheckStateFits(const StackSpec& spec, DType state_dtype, int64_t num_sequences, int64_t tokens,
                            int64_t available = AvailableMemory());

// "mixer "kvm" begins with a whole block of chunk_len 16777216 tokens" when what the first token of a sequence takes in
// the layers of one mixer is more than `available` bytes for that reason; otherwise empty.
std::string DescribeBlockTooLarge(const StackSpec& spec, DType state_dtype, int64_t num_sequences, int64_t available);

}  // namespace kvm

#endif  // KVM_TOOLS_FLAGS_STATE_FITS_H_
