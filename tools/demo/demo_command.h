#ifndef KVM_TOOLS_DEMO_DEMO_COMMAND_H_
#define KVM_TOOLS_DEMO_DEMO_COMMAND_H_

#include "tools/cli/command.h"

namespace kvm {

// kvm demo: the tour. Everything it needs is inside the binary.
Command DemoCommand();

}  // namespace kvm

#endif  // KVM_TOOLS_DEMO_DEMO_COMMAND_H_
