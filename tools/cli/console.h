#ifndef KVM_TOOLS_CLI_CONSOLE_H_
#define KVM_TOOLS_CLI_CONSOLE_H_

#include <functional>
#include <istream>
#include <ostream>
#include <string>
#include <vector>

#include "kvm/model/stack/model_options.h"

namespace kvm {

// What --device can name beside the processor.
struct Device {
  std::string name;
  EngineFactory engine = nullptr;
};

// Where a command reads, writes and computes: a terminal's streams, or a test's.
struct Console {
  std::istream& in;
  std::ostream& out;  // results
  std::ostream& err;  // everything else
  bool err_is_terminal = false;
  // Whether Ctrl-C was pressed. Commands ask between steps.
  std::function<bool()> interrupted = [] { return false; };
  // What text is read from in place of `in`; none if negative. Streams say nothing of why they cannot be read.
  int in_descriptor = -1;
  // Whether Ctrl-C ends the process without being asked for. AbandonableStep calls it.
  std::function<void(bool)> end_at_interrupt = [](bool) {};
  int abandonable_steps = 0;         // under way
  std::vector<Device> devices = {};  // that the program was linked with
};

// A step that may be left in the middle, as it makes no files, holds no locks and has said all that it has to say:
// while one of these is alive, Ctrl-C ends the process at once. For work that may take long and asks nobody whether to
// go on, such as loading a model. May be nested.
class AbandonableStep {
 public:
  explicit AbandonableStep(Console& console) : console_(console) {
    if (console_.abandonable_steps++ == 0) console_.end_at_interrupt(true);
  }
  ~AbandonableStep() {
    if (--console_.abandonable_steps == 0) console_.end_at_interrupt(false);
  }
  AbandonableStep(const AbandonableStep&) = delete;
  AbandonableStep& operator=(const AbandonableStep&) = delete;

 private:
  Console& console_;
};

}  // namespace kvm

#endif  // KVM_TOOLS_CLI_CONSOLE_H_
