#ifndef KVM_KERNELS_CPU_KEY_RANGE_H_
#define KVM_KERNELS_CPU_KEY_RANGE_H_

#include <cstdint>

namespace kvm {

// Keys begin <= i < end of a tile or segment; empty when begin >= end.
struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool empty() const { return begin >= end; }
};

}  // namespace kvm

#endif  // KVM_KERNELS_CPU_KEY_RANGE_H_
