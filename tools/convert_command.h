#ifndef KVM_TOOLS_CONVERT_COMMAND_H_
#define KVM_TOOLS_CONVERT_COMMAND_H_

#include "tools/cli/command.h"

namespace kvm {

// `kvm convert`: the same model in another form.
Command ConvertCommand();

}  // namespace kvm

#endif  // KVM_TOOLS_CONVERT_COMMAND_H_
