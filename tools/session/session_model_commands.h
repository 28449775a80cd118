#ifndef KVM_TOOLS_SESSION_SESSION_MODEL_COMMANDS_H_
#define KVM_TOOLS_SESSION_SESSION_MODEL_COMMANDS_H_

// The parts of `kvm session` that may have a model read tokens.

#include "tools/cli/command.h"

namespace kvm {

Command SessionSaveCommand();
Command SessionRestoreCommand();

}  // namespace kvm

#endif  // KVM_TOOLS_SESSION_SESSION_MODEL_COMMANDS_H_
