#include "tools/session/session_command.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvm/base/nearest_name.h"
#include "tools/cli/command_status.h"
#include "tools/session/session_files_commands.h"
#include "tools/session/session_model_commands.h"

namespace kvm {
namespace {

std::vector<Command> Subcommands() {
  return {SessionSaveCommand(), SessionRestoreCommand(), SessionForkCommand(), SessionListCommand(),
          SessionDropCommand()};
}

std::string Overview() {
  std::string text =
      "usage: kvm session COMMAND --store=DIR [--flag=value ...]\n\n"
      "Named sessions of a state store: sequences that a model has read, to go on with later (kvm generate --store).\n"
      "A store has one user at a time.\n\ncommands:\n";
  for (const Command& command : Subcommands()) {
    absl::StrAppend(&text, "  ", command.name, std::string(9 - command.name.size(), ' '), command.summary, "\n");
  }
  absl::StrAppend(&text, "\nkvm help session COMMAND lists a command's flags.\n");
  return text;
}

absl::Status RunSession(absl::Span<const std::string> args, Console& console) {
  if (args.empty()) return UsageError("kvm session needs a command (see kvm help session)");
  const bool wants_help = IsHelpWord(args[0]);
  if (wants_help && args.size() == 1) return HelpRequest(Overview());
  const std::string& name = args[wants_help ? 1 : 0];
  std::vector<std::string> rest(args.begin() + (wants_help ? 2 : 1), args.end());
  if (wants_help) rest.push_back("--help");
  std::vector<std::string> names;
  for (const Command& command : Subcommands()) {
    if (command.name == name) return command.run(rest, console);
    names.push_back(command.name);
  }
  return UsageError(absl::StrCat("unknown session command '", name, "'", DidYouMean(name, names, "kvm session "),
                                 " (see kvm help session)"));
}

}  // namespace

Command SessionCommand() { return {"session", "keeps sessions in a state store and goes back in them", RunSession}; }

}  // namespace kvm
