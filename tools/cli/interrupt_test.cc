#include "tools/cli/interrupt.h"

#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <sstream>

#include "gtest/gtest.h"
#include "tools/cli/console.h"

namespace kvm {
namespace {

constexpr int kInterrupted = 130;

void Raise(int signal) { ASSERT_EQ(std::raise(signal), 0); }

TEST(InterruptDeathTest, SetsAFlagWhereThereIsSomethingToTidyUp) {
  EXPECT_EXIT(
      {
        CatchInterrupts();
        Raise(SIGTERM);
        _exit(WasInterrupted() ? 7 : 8);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST(InterruptDeathTest, EndsAStepThatLeavesNothingBehindAtOnce) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_EXIT(
        {
          CatchInterrupts();
          EndAtInterrupt(true);
          Raise(signal);
          _exit(8);
        },
        ::testing::ExitedWithCode(kInterrupted), "kvm: interrupted");
  }
}

TEST(InterruptDeathTest, OneThatCameBeforeTheStepEndsItToo) {
  EXPECT_EXIT(
      {
        CatchInterrupts();
        Raise(SIGINT);
        EndAtInterrupt(true);
        _exit(8);
      },
      ::testing::ExitedWithCode(kInterrupted), "kvm: interrupted");
}

// Makes standard error a pipe without room, and ends by a signal.
void EndWithErrorsNobodyReads() {
  int ends[2];
  if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0) _exit(9);
  const char page[4096] = {};
  pollfd room = {STDERR_FILENO, POLLOUT, 0};
  while (poll(&room, 1, 0) == 1) {
    if (write(STDERR_FILENO, page, sizeof(page)) < 0) _exit(9);
  }
  alarm(20);  // ends the process otherwise
  CatchInterrupts();
  EndAtInterrupt(true);
  Raise(SIGTERM);
}

TEST(InterruptDeathTest, AFullPipeForErrorsIsNotWaitedFor) {
  EXPECT_EXIT(EndWithErrorsNobodyReads(), ::testing::ExitedWithCode(kInterrupted), "");
}

TEST(InterruptTest, StepsWithinStepsEndWithTheOutermost) {
  std::istringstream in;
  std::ostringstream out, err;
  Console console{in, out, err};
  std::string said;
  console.end_at_interrupt = [&](bool on) { said += on ? '+' : '-'; };
  {
    const AbandonableStep outer(console);
    { const AbandonableStep inner(console); }
    EXPECT_EQ(said, "+");
  }
  EXPECT_EQ(said, "+-");
}

}  // namespace
}  // namespace kvm
