#ifndef KVM_TOOLS_SESSION_SESSION_FILES_COMMANDS_H_
#define KVM_TOOLS_SESSION_SESSION_FILES_COMMANDS_H_

// The parts of `kvm session` that need no model: a session is a file, and its header says what there is to say.

#include "tools/cli/command.h"

namespace kvm {

Command SessionForkCommand();
Command SessionListCommand();
Command SessionDropCommand();

}  // namespace kvm

#endif  // KVM_TOOLS_SESSION_SESSION_FILES_COMMANDS_H_
