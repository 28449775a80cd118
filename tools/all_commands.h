#ifndef KVM_TOOLS_ALL_COMMANDS_H_
#define KVM_TOOLS_ALL_COMMANDS_H_

#include <vector>

#include "tools/cli/command.h"

namespace kvm {

// The commands of the binary, as its help lists them.
std::vector<Command> AllCommands();

}  // namespace kvm

#endif  // KVM_TOOLS_ALL_COMMANDS_H_
