#ifndef KVM_BENCH_RESIDENT_MEMORY_H_
#define KVM_BENCH_RESIDENT_MEMORY_H_

#include <cstdint>

namespace kvm {

// Bytes of main memory that this process takes now (VmRSS), what it has freed given back; 0 where that cannot be told.
int64_t ResidentMemory();

}  // namespace kvm

#endif  // KVM_BENCH_RESIDENT_MEMORY_H_
