#ifndef KVM_TOOLS_TOKENIZE_COMMAND_H_
#define KVM_TOOLS_TOKENIZE_COMMAND_H_

#include "tools/cli/command.h"

namespace kvm {

// kvm tokenize: text to token ids.
Command TokenizeCommand();

// kvm detokenize: token ids to text.
Command DetokenizeCommand();

}  // namespace kvm

#endif  // KVM_TOOLS_TOKENIZE_COMMAND_H_
