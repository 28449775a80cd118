#ifndef KVM_TOOLS_CLI_MEMORY_LIMITS_H_
#define KVM_TOOLS_CLI_MEMORY_LIMITS_H_

// How much memory this process may have, and how much of that is left: what the machine, its control groups (those that
// containers are made of, version 1 and 2) and its limit of address space (RLIMIT_AS, ulimit -v) allow.

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace kvm {

struct MemoryBounds {
  int64_t total = 0;      // 0: cannot be told
  int64_t available = 0;  // without taking any from other programs
};

// Of the machine alone: MemTotal and MemAvailable of /proc/meminfo. `root` is put before every path, for tests.
MemoryBounds MachineMemory(const std::string& root = "");

// What control groups and limits leave of `machine`. Of a group's memory, cached files that can be dropped count as
// free, and so they do in MemAvailable; whatever says nothing limits nothing.
MemoryBounds ProcessMemory(const MemoryBounds& machine, const std::string& root = "");

// The number of bytes in a text like /proc/meminfo's, "MemAvailable:   12345 kB", for `name` "MemAvailable:"; −1 when
// it does not say.
int64_t ParseMeminfo(absl::string_view meminfo, absl::string_view name);

}  // namespace kvm

#endif  // KVM_TOOLS_CLI_MEMORY_LIMITS_H_
