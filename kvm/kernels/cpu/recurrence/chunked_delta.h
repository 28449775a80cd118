#ifndef KVM_KERNELS_CPU_RECURRENCE_CHUNKED_DELTA_H_
#define KVM_KERNELS_CPU_RECURRENCE_CHUNKED_DELTA_H_

// The linear recurrences of RWKV-7, Gated DeltaNet and Kimi Delta Attention over short chunks of tokens as products of
// matrices: the same values as the step forms (wkv7.h, delta_rule.h) with other rounding. Derived in
// docs/chunked_recurrences.md.
//
// What a token puts out depends on it and on tokens before it alone, to the bit. It also depends on where the call that
// brings it begins, as chunks are counted from there: unlike the step forms, another cut into calls rounds differently.

#include "absl/types/span.h"
#include "kvm/kernels/cpu/recurrence/delta_rule.h"
#include "kvm/kernels/cpu/recurrence/wkv7.h"
#include "kvm/kernels/thread_pool.h"

namespace kvm {

// From this many tokens a call on, chunks can pay.
inline constexpr int64_t kMinChunkedTokens = 16;

// As Wkv7 (wkv7.h), chunk by chunk. Decays may be any numbers in [0, 1].
void ChunkedWkv7(absl::Span<const Wkv7Head> heads, ThreadPool& pool);

// As DeltaRule (delta_rule.h), chunk by chunk.
void ChunkedDeltaRule(absl::Span<const DeltaRuleHead> heads, ThreadPool& pool);

}  // namespace kvm

#endif  // KVM_KERNELS_CPU_RECURRENCE_CHUNKED_DELTA_H_
