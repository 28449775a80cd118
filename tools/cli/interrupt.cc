#include "tools/cli/interrupt.h"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <initializer_list>

#include "absl/strings/string_view.h"
#include "tools/cli/command.h"

namespace kvm {
namespace {

// A signal handler can reach nothing but static storage, and any thread may run it.
std::atomic<bool> interrupted{false};
std::atomic<bool> ends_at_interrupt{false};
static_assert(std::atomic<bool>::is_always_lock_free, "others may not be used in a signal handler");

// As much of the text as there is room for: a full pipe is not waited for.
void TryToSay(absl::string_view text) {
  pollfd error = {STDERR_FILENO, POLLOUT, 0};
  if (poll(&error, 1, 0) != 1) return;
  // Nobody is left to be told that this failed.
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) return;
}

// All of this may be called in a signal handler.
[[noreturn]] void EndNow() {
  // A line of progress may be there.
  if (isatty(STDERR_FILENO) == 1) TryToSay("\r\x1b[K");
  TryToSay("kvm: interrupted\n");
  _exit(kExitInterrupted);
}

void OnSignal(int) {
  const int error = errno;
  interrupted = true;
  if (ends_at_interrupt) EndNow();
  errno = error;
}

}  // namespace

void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before;
    if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) continue;
    sigaction(signal, &action, nullptr);
  }
}

bool WasInterrupted() { return interrupted; }

void EndAtInterrupt(bool on) {
  // In this order: a signal in between ends the process in the handler.
  ends_at_interrupt = on;
  if (on && interrupted) EndNow();
}

}  // namespace kvm
