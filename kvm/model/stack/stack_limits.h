#ifndef KVM_MODEL_STACK_STACK_LIMITS_H_
#define KVM_MODEL_STACK_STACK_LIMITS_H_

#include <cstdint>

namespace kvm {

// The most layers of a stack.
inline constexpr int kMaxLayers = 4096;

// The largest single size in a spec.
inline constexpr int64_t kMaxSpecSize = int64_t{1} << 24;

}  // namespace kvm

#endif  // KVM_MODEL_STACK_STACK_LIMITS_H_
