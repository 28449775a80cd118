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

// Bytes of it that can be had now without taking any from other programs (MemAvailable of /proc/meminfo); all of it
// where that is not said.
int64_t AvailableMemory();

// The number of bytes in a text like /proc/meminfo's: "MemAvailable:   12345 kB"; −1 when it does not say.
int64_t ParseMemAvailable(absl::string_view meminfo);

// ResourceExhausted, with both sizes and the advice, when `bytes` are more than `available` ones, which are none when
// they cannot be told: "the new weights take 2.0 TiB and this machine has 8.0 GiB available; choose a smaller stack".
// `what` is a plural.
absl::Status CheckFitsInMemory(absl::string_view what, double bytes, absl::string_view advice,
                               int64_t available = AvailableMemory());

}  // namespace kvm

#endif  // KVM_TOOLS_CLI_MACHINE_H_
