#ifndef KVM_KERNELS_CPU_SLOT_CHECKS_H_
#define KVM_KERNELS_CPU_SLOT_CHECKS_H_

// What the calls of slot_update.h check of their arguments.

#include "kvm/base/check.h"
#include "kvm/kernels/cpu/slot_update.h"

namespace kvm {

// The norm fits rows of qk_dim channels.
void CheckMemoryKeyNorm(const MemoryKeyNorm& norm, int64_t qk_dim, CallSite site);

// Rows have memory for what they say they hold.
void CheckSlotRows(const SlotRows& rows, CallSite site);

// The same, and tokens and norm fit them.
void CheckSlotTokens(const SlotTokens& tokens, const MemoryKeyNorm& norm, const SlotRows& rows, CallSite site);

}  // namespace kvm

#endif  // KVM_KERNELS_CPU_SLOT_CHECKS_H_
