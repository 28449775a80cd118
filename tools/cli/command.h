#ifndef KVM_TOOLS_CLI_COMMAND_H_
#define KVM_TOOLS_CLI_COMMAND_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tools/cli/console.h"

namespace kvm {

// A subcommand of the `kvm` binary.
struct Command {
  std::string name;
  std::string summary;  // one line
  // Takes the arguments behind the command's name. Ends as command_status.h says.
  std::function<absl::Status(absl::Span<const std::string> args, Console& console)> run;
};

// Exit statuses of the binary.
inline constexpr int kExitDone = 0;
inline constexpr int kExitBadInput = 1;
inline constexpr int kExitBadUsage = 2;
inline constexpr int kExitInterrupted = 130;
inline constexpr int kExitOutputClosed = 141;

// Whether an argument asks for help: "help", "--help" or "-h".
bool IsHelpWord(absl::string_view word);

// Runs the command that args[0] names, "help" or "version". An error is one line on console.err. Returns the exit
// status.
int RunCommandLine(const std::vector<Command>& commands, absl::Span<const std::string> args, Console& console);

}  // namespace kvm

#endif  // KVM_TOOLS_CLI_COMMAND_H_
