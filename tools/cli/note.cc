#include "tools/cli/note.h"

#include <cstddef>

#include "kvm/base/file/utf8.h"

namespace kvm {

void PrintNote(Console& console, absl::string_view text) {
  // Room for two of the longest paths.
  constexpr size_t kLongest = 10000;
  console.err << "note: " << Printable(text, kLongest) << std::endl;
}

}  // namespace kvm
