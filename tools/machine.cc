#include "tools/machine.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tools/format.h"

namespace kvm {

int64_t PhysicalMemory() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  const int64_t page_size = sysconf(_SC_PAGE_SIZE);
  return pages > 0 && page_size > 0 ? pages * page_size : 0;
}

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (!absl::StartsWith(line, "model name") || colon == std::string::npos) continue;
    return std::string(absl::StripAsciiWhitespace(absl::string_view(line).substr(colon + 1)));
  }
  return "unknown";
}

absl::Status CheckFitsInMemory(absl::string_view what, double bytes, absl::string_view advice) {
  const int64_t memory = PhysicalMemory();
  if (memory == 0 || bytes <= static_cast<double>(memory)) return absl::OkStatus();
  constexpr double kMost = 9e18;  // of what an int64 holds
  return absl::ResourceExhaustedError(absl::StrCat(what, " take ",
                                                   FormatBytes(static_cast<int64_t>(std::min(bytes, kMost))),
                                                   " and this machine has ", FormatBytes(memory), "; ", advice));
}

}  // namespace kvm
