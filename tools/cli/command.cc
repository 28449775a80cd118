#include "tools/cli/command.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/nearest_name.h"
#include "tools/cli/command_status.h"

namespace kvm {
namespace {

constexpr char kVersion[] = "kvm 0.1.0\n";

std::string Overview(const std::vector<Command>& commands) {
  size_t longest = 0;
  for (const Command& command : commands) longest = std::max(longest, command.name.size());
  std::string text = "usage: kvm COMMAND [--flag=value ...]\n\ncommands:\n";
  for (const Command& command : commands) {
    absl::StrAppend(&text, "  ", command.name, std::string(longest - command.name.size() + 2, ' '), command.summary,
                    "\n");
  }
  absl::StrAppend(&text,
                  "\nkvm help COMMAND lists a command's flags; kvm version says which kvm this is. Nothing is ever "
                  "fetched from a network.\n");
  return text;
}

constexpr char kVersionHelp[] = "usage: kvm version\n\nSays which kvm this is.\n";

bool IsVersion(absl::string_view word) { return word == "version" || word == "--version"; }

absl::Status RunVersion(absl::Span<const std::string> args, Console& console) {
  if (args.size() == 1 && IsHelpWord(args[0])) return HelpRequest(kVersionHelp);
  if (!args.empty()) return UsageError(absl::StrCat("kvm version takes no arguments, not '", args[0], "'"));
  console.out << kVersion;
  return absl::OkStatus();
}

absl::Status Run(const std::vector<Command>& commands, absl::Span<const std::string> args, Console& console) {
  if (args.empty()) return UsageError("no command given (see kvm help)");
  const bool wants_help = IsHelpWord(args[0]);
  std::vector<std::string> rest(args.begin() + (wants_help ? std::min<size_t>(args.size(), 2) : 1), args.end());
  // What follows the command's name may be that of a command of its own.
  if (wants_help) rest.push_back("--help");
  const std::string name = wants_help && args.size() > 1 ? args[1] : args[0];
  if (wants_help && IsHelpWord(name)) return HelpRequest(Overview(commands));
  if (IsVersion(name)) return RunVersion(rest, console);

  std::vector<std::string> names = {"help", "version"};
  for (const Command& command : commands) {
    if (command.name == name) return command.run(rest, console);
    names.push_back(command.name);
  }
  return UsageError(absl::StrCat("unknown command '", name, "'", DidYouMean(name, names, "kvm "), " (see kvm help)"));
}

std::string OneLine(absl::string_view message) {
  std::string line;
  for (absl::string_view part : absl::StrSplit(message, '\n', absl::SkipWhitespace())) {
    absl::StrAppend(&line, line.empty() ? "" : " ", absl::StripAsciiWhitespace(part));
  }
  return line;
}

}  // namespace

bool IsHelpWord(absl::string_view word) { return word == "help" || word == "--help" || word == "-h"; }

int RunCommandLine(const std::vector<Command>& commands, absl::Span<const std::string> args, Console& console) {
  absl::Status status = Run(commands, args, console);
  if (IsHelpRequest(status)) {
    console.out << status.message();
    status = absl::OkStatus();
  }
  console.out.flush();
  // Nobody had read what was there to be written, or nobody reads any more.
  if (status.ok() && !console.out) status = console.interrupted() ? Interrupted() : OutputClosed();
  if (status.ok()) return kExitDone;
  if (IsInterrupted(status)) {
    console.err << "kvm: interrupted\n";
    return kExitInterrupted;
  }
  if (IsOutputClosed(status)) return kExitOutputClosed;
  // Messages name files and tensors, whose names may hold anything. Every tensor of a large model fits.
  constexpr size_t kLongest = 1 << 18;
  console.err << "kvm: " << Printable(OneLine(status.message()), kLongest) << "\n";
  return IsUsageError(status) ? kExitBadUsage : kExitBadInput;
}

}  // namespace kvm
