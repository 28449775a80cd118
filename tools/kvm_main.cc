// The `kvm` binary.

#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include "tools/all_commands.h"
#include "tools/command.h"
#include "tools/console.h"
#include "tools/interrupt.h"

namespace {

// Whether standard output is a pipe that nobody reads any more.
bool ReaderIsGone() {
  pollfd out = {STDOUT_FILENO, 0, 0};
  return poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

int Run(const std::vector<std::string>& args) {
  kvm::Console console{std::cin, std::cout, std::cerr, isatty(STDERR_FILENO) == 1, kvm::WasInterrupted};
  const int exit_status = kvm::RunCommandLine(kvm::AllCommands(), args, console);
  if (exit_status == kvm::kExitOutputClosed && !ReaderIsGone()) {
    std::cerr << "kvm: cannot write to standard output; is the disk full?\n";
    return kvm::kExitBadInput;
  }
  return exit_status;
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  // `bazel run` starts programs elsewhere; paths are meant from where the user is.
  if (const char* folder = std::getenv("BUILD_WORKING_DIRECTORY"); folder != nullptr && chdir(folder) != 0) {
    std::cerr << "kvm: cannot enter " << folder << "\n";
    return kvm::kExitBadInput;
  }
  kvm::CatchInterrupts();
  // Writing to a closed pipe becomes an error, so that files in the making are removed.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return Run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::bad_alloc&) {
    std::cerr << "kvm: out of memory; try a smaller model or shorter input\n";
    return kvm::kExitBadInput;
  }
}
