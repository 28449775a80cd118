#include "tools/cli/text_input.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/cli/command_status.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

class TextInputTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::string> ReadFrom(int descriptor) {
    console_.in_descriptor = descriptor;
    return ReadTextInput("-", console_);
  }

  std::istringstream in_{"from the stream"};
  std::ostringstream out_, err_;
  Console console_{in_, out_, err_};
};

TEST_F(TextInputTest, ReadsStreamPipeAndFile) {
  EXPECT_EQ(*ReadTextInput("-", console_), "from the stream");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], "a\0b", 3), 3);
  close(ends[1]);
  EXPECT_EQ(*ReadFrom(ends[0]), std::string("a\0b", 3));
  close(ends[0]);
}

TEST_F(TextInputTest, SaysWhyItCannotBeRead) {
  const int folder = open(testing::TempDir().c_str(), O_RDONLY | O_DIRECTORY);
  const int write_only = open("/dev/null", O_WRONLY);
  const int closed = dup(write_only);
  close(closed);
  for (const int descriptor : {folder, write_only, closed}) {
    const absl::Status status = ReadFrom(descriptor).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("cannot read standard input: ")) << status;
  }
  EXPECT_THAT(std::string(ReadTextInput(testing::TempDir(), console_).status().message()), HasSubstr("cannot read"));
  close(folder);
  close(write_only);
}

volatile sig_atomic_t signalled = 0;

// An empty pipe, and a named one without a writer, are waited for until a signal comes.
TEST_F(TextInputTest, SignalsEndTheWait) {
  struct sigaction action = {};
  action.sa_handler = [](int) { signalled = 1; };
  sigaction(SIGALRM, &action, nullptr);
  console_.interrupted = [] { return signalled != 0; };
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  // It comes again, in case the first was too early.
  const struct itimerval soon = {{0, 50000}, {0, 50000}};
  setitimer(ITIMER_REAL, &soon, nullptr);
  EXPECT_TRUE(IsInterrupted(ReadFrom(ends[0]).status()));
  signalled = 0;
  const std::string fifo = testing::TempDir() + "/text_input_fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_TRUE(IsInterrupted(ReadTextInput(fifo, console_).status()));
  const struct itimerval never = {};
  setitimer(ITIMER_REAL, &never, nullptr);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace kvm
