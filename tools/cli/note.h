#ifndef KVM_TOOLS_CLI_NOTE_H_
#define KVM_TOOLS_CLI_NOTE_H_

#include "absl/strings/string_view.h"
#include "tools/cli/console.h"

namespace kvm {

// Says something on console.err that is no error, in one line. What it quotes may come from anywhere, such as names
// found in a folder: control characters are escaped.
void PrintNote(Console& console, absl::string_view text);

}  // namespace kvm

#endif  // KVM_TOOLS_CLI_NOTE_H_
