#ifndef KVM_TOOLS_INSPECT_COMMAND_H_
#define KVM_TOOLS_INSPECT_COMMAND_H_

#include "tools/cli/command.h"

namespace kvm {

// kvm inspect: what a model folder, a tensor file or a stack holds.
Command InspectCommand();

}  // namespace kvm

#endif  // KVM_TOOLS_INSPECT_COMMAND_H_
