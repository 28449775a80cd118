#ifndef KVM_TOOLS_GENERATE_COMMAND_H_
#define KVM_TOOLS_GENERATE_COMMAND_H_

#include "tools/cli/command.h"

namespace kvm {

// kvm generate: continues a prompt.
Command GenerateCommand();

}  // namespace kvm

#endif  // KVM_TOOLS_GENERATE_COMMAND_H_
