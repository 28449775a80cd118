#ifndef KVM_TOOLS_CLI_CONSOLE_H_
#define KVM_TOOLS_CLI_CONSOLE_H_

#include <functional>
#include <istream>
#include <ostream>

namespace kvm {

// Where a command reads and writes: a terminal's streams, or a test's.
struct Console {
  std::istream& in;
  std::ostream& out;  // results
  std::ostream& err;  // everything else
  bool err_is_terminal = false;
  // Whether Ctrl-C was pressed. Commands ask between steps.
  std::function<bool()> interrupted = [] { return false; };
  // What text is read from in place of `in`; none if negative. Streams say nothing of why they cannot be read.
  int in_descriptor = -1;
};

}  // namespace kvm

#endif  // KVM_TOOLS_CLI_CONSOLE_H_
