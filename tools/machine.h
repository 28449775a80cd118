#ifndef KVM_TOOLS_MACHINE_H_
#define KVM_TOOLS_MACHINE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace kvm {

// Bytes of main memory that this machine has in all; 0 when that cannot be told.
int64_t PhysicalMemory();

// What the processor calls itself: "AMD EPYC"; "unknown" when that cannot be told.
std::string ProcessorName();

// ResourceExhausted, with both sizes and the advice, when `bytes` are more than this machine has:
// "the new weights take 2.0 TiB and this machine has 8.0 GiB; choose a smaller stack". `what` is a plural.
absl::Status CheckFitsInMemory(absl::string_view what, double bytes, absl::string_view advice);

}  // namespace kvm

#endif  // KVM_TOOLS_MACHINE_H_
