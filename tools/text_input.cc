#include "tools/text_input.h"

#include <iterator>

#include "kvm/io/mapped_file.h"

namespace kvm {

absl::StatusOr<std::string> ReadTextInput(const std::string& path, Console& console) {
  if (path != "-") return ReadFile(path);
  return std::string(std::istreambuf_iterator<char>(console.in), std::istreambuf_iterator<char>());
}

}  // namespace kvm
