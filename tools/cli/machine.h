#ifndef KVM_TOOLS_CLI_MACHINE_H_
#define KVM_TOOLS_CLI_MACHINE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace kvm {

// Bytes of main memory that this machine has in all; 0 when that cannot be told.
int64_t PhysicalMemory();

// What the processor calls itself: "AMD EPYC"; "unknown" when that cannot be told.
std::string ProcessorName();

// Bytes of it that this process may have, as containers and limits are (memory_limits.h); 0 when that cannot be told.
int64_t UsableMemory();

// Bytes that can be had now without taking any from other programs.
int64_t AvailableMemory();

// ResourceExhausted, with both sizes and the advice, when `bytes` are more than `available` ones, which are none when
// they cannot be told: "the new weights take 2.0 TiB and this machine has 8.0 GiB available; choose a smaller stack",
// or "and of the 2.0 GiB that this process may have, 1.0 GiB are available" where it may have less than the machine
// has. `what` is a plural.
absl::Status CheckFitsInMemory(absl::string_view what, double bytes, absl::string_view advice,
                               int64_t available = AvailableMemory());

}  // namespace kvm

#endif  // KVM_TOOLS_CLI_MACHINE_H_
