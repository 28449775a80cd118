#ifndef KVM_TOOLS_SESSION_SESSION_COMMAND_H_
#define KVM_TOOLS_SESSION_SESSION_COMMAND_H_

#include "tools/cli/command.h"

namespace kvm {

// `kvm session save|restore|fork|list|drop`: the named sessions of a state store.
Command SessionCommand();

}  // namespace kvm

#endif  // KVM_TOOLS_SESSION_SESSION_COMMAND_H_
