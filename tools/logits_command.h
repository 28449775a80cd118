#ifndef KVM_TOOLS_LOGITS_COMMAND_H_
#define KVM_TOOLS_LOGITS_COMMAND_H_

#include "tools/cli/command.h"

namespace kvm {

// kvm logits: token ids in a safetensors file to logits in another.
Command LogitsCommand();

}  // namespace kvm

#endif  // KVM_TOOLS_LOGITS_COMMAND_H_
