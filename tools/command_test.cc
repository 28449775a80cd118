#include "tools/cli/command.h"

#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/cli/command_status.h"
#include "tools/cli/flag_set.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

class CommandTest : public ::testing::Test {
 protected:
  int Run(const std::vector<std::string>& args) {
    const std::vector<Command> commands = {
        {"greet", "says hello",
         [](absl::Span<const std::string> args, Console& console) {
           FlagSet flags("greet", "", "Says hello.");
           const absl::Status status = flags.Parse(args);
           if (status.ok()) console.out << "hello\n";
           return status;
         }},
        {"fail", "finds a fault",
         [](absl::Span<const std::string>, Console&) {
           return absl::NotFoundError("a.safetensors: no such file:\n  expected a model");
         }},
        {"shout", "has an odd name",
         [](absl::Span<const std::string>, Console&) {
           return absl::NotFoundError(std::string("\x1b[31mred\xff") + std::string(1 << 20, 'x'));
         }},
        {"family", "has commands of its own",
         [](absl::Span<const std::string> args, Console& console) {
           console.out << absl::StrJoin(args, " ");
           return absl::OkStatus();
         }},
        {"stop", "is interrupted", [](absl::Span<const std::string>, Console&) { return Interrupted(); }}};
    Console console{in_, out_, err_, false, [this] { return interrupted_; }};
    return RunCommandLine(commands, args, console);
  }

  std::istringstream in_;
  std::ostringstream out_;
  std::ostringstream err_;
  bool interrupted_ = false;
};

TEST_F(CommandTest, RunsTheNamedCommand) {
  EXPECT_EQ(Run({"greet"}), 0);
  EXPECT_EQ(out_.str(), "hello\n");
  EXPECT_EQ(err_.str(), "");
}

TEST_F(CommandTest, HelpGoesToOut) {
  EXPECT_EQ(Run({"help"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("  greet   says hello\n  fail    finds a fault\n"));
  EXPECT_EQ(Run({"help", "greet"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("usage: kvm greet"));
  EXPECT_EQ(Run({"greet", "--help"}), 0);
  EXPECT_EQ(err_.str(), "");
  // What follows the name is the command's own.
  out_.str("");
  EXPECT_EQ(Run({"help", "family", "aunt"}), 0);
  EXPECT_EQ(out_.str(), "aunt --help");
}

TEST_F(CommandTest, TellsItsVersion) {
  EXPECT_EQ(Run({"--version"}), 0);
  EXPECT_THAT(out_.str(), ::testing::MatchesRegex("kvm [0-9]+[.][0-9]+[.][0-9]+\n"));
  EXPECT_EQ(Run({"--version", "greet"}), 2);
  const std::string version = out_.str();
  out_.str("");
  EXPECT_EQ(Run({"version"}), 0);
  EXPECT_EQ(out_.str(), version);
  EXPECT_EQ(Run({"help", "version"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("usage: kvm version"));
}

TEST_F(CommandTest, UnknownCommandNamesTheNearest) {
  EXPECT_EQ(Run({"gret"}), 2);
  EXPECT_EQ(err_.str(), "kvm: unknown command 'gret'; did you mean kvm greet? (see kvm help)\n");
  EXPECT_EQ(out_.str(), "");
  EXPECT_EQ(Run({"help", "gret"}), 2);
  EXPECT_EQ(Run({}), 2);
}

TEST_F(CommandTest, WrongFlagIsWrongUsage) {
  EXPECT_EQ(Run({"greet", "--loud"}), 2);
  EXPECT_EQ(err_.str(), "kvm: unknown flag --loud (see kvm help greet)\n");
}

TEST_F(CommandTest, FaultyInputIsOneLine) {
  EXPECT_EQ(Run({"fail"}), 1);
  EXPECT_EQ(err_.str(), "kvm: a.safetensors: no such file: expected a model\n");
}

TEST_F(CommandTest, ErrorsCannotSpeakToTheTerminal) {
  EXPECT_EQ(Run({"shout"}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("kvm: \\x1b[31mred\\xff"));
  EXPECT_LT(err_.str().size(), size_t{300000});
  err_.str("");
  EXPECT_EQ(Run({"\x1b[31m"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("unknown command '\\x1b[31m'"));
}

TEST_F(CommandTest, InterruptHasItsOwnStatus) {
  EXPECT_EQ(Run({"stop"}), 130);
  EXPECT_EQ(err_.str(), "kvm: interrupted\n");
}

TEST_F(CommandTest, OutputThatCannotBeWrittenIsNoSuccess) {
  out_.setstate(std::ios::badbit);
  EXPECT_EQ(Run({"greet"}), 141);
  // As when Ctrl-C ends the wait for room in a pipe.
  interrupted_ = true;
  EXPECT_EQ(Run({"greet"}), 130);
}

}  // namespace
}  // namespace kvm
