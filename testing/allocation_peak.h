#ifndef KVM_TESTING_ALLOCATION_PEAK_H_
#define KVM_TESTING_ALLOCATION_PEAK_H_

#include <cstddef>

#include "absl/functional/function_ref.h"

namespace kvm {

// The most bytes that `run` held at any one time from operator new, beyond those held when it began. Programs that link
// this have an operator new that counts. One at a time.
size_t AllocationPeak(absl::FunctionRef<void()> run);

}  // namespace kvm

#endif  // KVM_TESTING_ALLOCATION_PEAK_H_
