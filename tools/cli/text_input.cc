#include "tools/cli/text_input.h"

#include <iterator>

#include "absl/status/status.h"
#include "kvm/base/file/mapped_file.h"
#include "tools/cli/command_status.h"

namespace kvm {

absl::StatusOr<std::string> ReadTextInput(const std::string& path, Console& console) {
  const bool standard = path == "-";
  if (standard && console.in_descriptor < 0) {
    return std::string(std::istreambuf_iterator<char>(console.in), std::istreambuf_iterator<char>());
  }
  absl::StatusOr<std::string> text = standard
                                         ? ReadDescriptor(console.in_descriptor, "standard input", console.interrupted)
                                         : ReadFileOrPipe(path, console.interrupted);
  if (absl::IsCancelled(text.status())) return Interrupted();
  return text;
}

}  // namespace kvm
