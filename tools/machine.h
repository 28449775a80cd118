#ifndef KVM_TOOLS_MACHINE_H_
#define KVM_TOOLS_MACHINE_H_

#include <cstdint>

namespace kvm {

// Bytes of main memory that this machine has in all; 0 when that cannot be told.
int64_t PhysicalMemory();

}  // namespace kvm

#endif  // KVM_TOOLS_MACHINE_H_
