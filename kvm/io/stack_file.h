#ifndef KVM_IO_STACK_FILE_H_
#define KVM_IO_STACK_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "kvm/model/stack/stack.pb.h"

namespace kvm {

// The stack in a .textproto. Errors of ReadFile and, with what the file is when it is something else, ParseStackSpec.
absl::StatusOr<StackSpec> ReadStackFile(const std::string& path);

}  // namespace kvm

#endif  // KVM_IO_STACK_FILE_H_
