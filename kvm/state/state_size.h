#ifndef KVM_STATE_STATE_SIZE_H_
#define KVM_STATE_STATE_SIZE_H_

#include <cstdint>

namespace kvm {

// What a state will take.
struct StateSize {
  int64_t rows = 0;   // compressed rows per key/value head (KVM; of the head with most), else 0
  int64_t bytes = 0;  // what ByteSize() of the state will be
};

}  // namespace kvm

#endif  // KVM_STATE_STATE_SIZE_H_
