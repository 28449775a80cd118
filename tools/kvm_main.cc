// The `kvm` binary.

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <initializer_list>
#include <iostream>
#include <new>
#include <ostream>
#include <string>
#include <vector>

#include "tools/all_commands.h"
#include "tools/cli/command.h"
#include "tools/cli/console.h"
#include "tools/cli/descriptor_stream.h"
#include "tools/cli/interrupt.h"

namespace {

// A file opened later must not become a standard stream that the process was started without: in their place comes what
// can be neither read nor written.
void FillClosedStreams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) >= 0) continue;
    // Takes the lowest free number, which is this one.
    const int flags = descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    if (open("/dev/null", flags) != descriptor) std::_Exit(kvm::kExitBadInput);
  }
}

bool IsWritable(int descriptor) {
  const int flags = fcntl(descriptor, F_GETFL);
  return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

// Whether standard output is a pipe that nobody reads any more.
bool ReaderIsGone() {
  pollfd out = {STDOUT_FILENO, 0, 0};
  return poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

int Run(const std::vector<std::string>& args) {
  kvm::DescriptorBuffer out_buffer(STDOUT_FILENO, kvm::WasInterrupted);
  kvm::DescriptorBuffer err_buffer(STDERR_FILENO, kvm::WasInterrupted);
  std::ostream out(&out_buffer);
  std::ostream err(&err_buffer);
  err << std::unitbuf;
  kvm::Console console{std::cin, out, err, isatty(STDERR_FILENO) == 1, kvm::WasInterrupted, STDIN_FILENO};
  console.end_at_interrupt = kvm::EndAtInterrupt;
  const int exit_status = kvm::RunCommandLine(kvm::AllCommands(), args, console);
  if (exit_status == kvm::kExitOutputClosed && !ReaderIsGone()) {
    err << (IsWritable(STDOUT_FILENO) ? "kvm: cannot write to standard output; is the disk full?\n"
                                      : "kvm: standard output is closed; the results have nowhere to go\n");
    return kvm::kExitBadInput;
  }
  return exit_status;
}

}  // namespace

int main(int argc, char** argv) {
  FillClosedStreams();
  std::ios::sync_with_stdio(false);
  // `bazel run` starts programs elsewhere; paths are meant from where the user is.
  if (const char* folder = std::getenv("BUILD_WORKING_DIRECTORY"); folder != nullptr && chdir(folder) != 0) {
    std::cerr << "kvm: cannot enter " << folder << "\n";
    return kvm::kExitBadInput;
  }
  kvm::CatchInterrupts();
  // Writing to a closed pipe becomes an error, so that files in the making are removed.
  std::signal(SIGPIPE, SIG_IGN);
  // So does growing a file beyond a limit.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return Run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::bad_alloc&) {
    std::cerr << "kvm: out of memory; try a smaller model or shorter input\n";
    return kvm::kExitBadInput;
  }
}
