#ifndef KVM_TOOLS_CLI_COMMAND_STATUS_H_
#define KVM_TOOLS_CLI_COMMAND_STATUS_H_

// How a command ends, as an absl::Status: OK, an error of the input, or one of the kinds below.

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace kvm {

// The command line itself is wrong.
absl::Status UsageError(absl::string_view message);

// The user asked for help; the text is the status's message.
absl::Status HelpRequest(absl::string_view text);

// Ctrl-C.
absl::Status Interrupted();

// Whoever read the results has gone, or they cannot be written.
absl::Status OutputClosed();

bool IsUsageError(const absl::Status& status);
bool IsHelpRequest(const absl::Status& status);
// Also of what libraries return when they were told to stop: Cancelled.
bool IsInterrupted(const absl::Status& status);
bool IsOutputClosed(const absl::Status& status);

}  // namespace kvm

#endif  // KVM_TOOLS_CLI_COMMAND_STATUS_H_
