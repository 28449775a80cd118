#include "tools/cli/text_input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
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

// An empty pipe, and a named one without a writer. No signal ends the wait, as when it came before the wait began.
TEST_F(TextInputTest, AWaitEndsWhenInterrupted) {
  absl::Time interrupt = absl::Now() + absl::Milliseconds(100);
  console_.interrupted = [&] { return absl::Now() > interrupt; };
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_TRUE(IsInterrupted(ReadFrom(ends[0]).status()));
  interrupt = absl::Now() + absl::Milliseconds(100);
  const std::string fifo = testing::TempDir() + "/text_input_fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_TRUE(IsInterrupted(ReadTextInput(fifo, console_).status()));
  close(ends[0]);
  close(ends[1]);
}

// Its writer comes late, and takes its time.
TEST_F(TextInputTest, ANamedPipeIsReadToItsEnd) {
  const std::string fifo = testing::TempDir() + "/text_input_slow_fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  std::thread writer([&fifo] {
    absl::SleepFor(absl::Milliseconds(120));
    std::ofstream file(fifo);
    file << "one " << std::flush;
    absl::SleepFor(absl::Milliseconds(120));
    file << "two";
  });
  EXPECT_EQ(*ReadTextInput(fifo, console_), "one two");
  writer.join();
}

}  // namespace
}  // namespace kvm
