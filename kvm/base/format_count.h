#ifndef KVM_BASE_FORMAT_COUNT_H_
#define KVM_BASE_FORMAT_COUNT_H_

// Numbers of things as people read them.

#include <cstdint>
#include <string>

namespace kvm {

// "1,234,567".
std::string FormatCount(int64_t count);

// "1 layer", "1,234 layers": the noun with an s unless there is just one.
std::string FormatCounted(int64_t count, const std::string& noun);

}  // namespace kvm

#endif  // KVM_BASE_FORMAT_COUNT_H_
