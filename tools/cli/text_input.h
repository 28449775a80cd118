#ifndef KVM_TOOLS_CLI_TEXT_INPUT_H_
#define KVM_TOOLS_CLI_TEXT_INPUT_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/cli/console.h"

namespace kvm {

// The contents of a file, or of standard input for "-". Interrupted for Ctrl-C while a pipe or terminal is waited for.
absl::StatusOr<std::string> ReadTextInput(const std::string& path, Console& console);

}  // namespace kvm

#endif  // KVM_TOOLS_CLI_TEXT_INPUT_H_
