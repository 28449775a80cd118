#ifndef KVM_TOOLS_BUILD_COMMAND_H_
#define KVM_TOOLS_BUILD_COMMAND_H_

#include "tools/cli/command.h"

namespace kvm {

// kvm build: assembles a stack and writes it as a model folder with initialized weights.
Command BuildCommand();

}  // namespace kvm

#endif  // KVM_TOOLS_BUILD_COMMAND_H_
