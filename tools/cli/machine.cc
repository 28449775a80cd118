#include "tools/cli/machine.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tools/cli/format.h"
#include "tools/cli/memory_limits.h"

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

int64_t UsableMemory() { return ProcessMemory({PhysicalMemory(), PhysicalMemory()}).total; }

int64_t AvailableMemory() {
  MemoryBounds machine = MachineMemory();
  if (machine.total == 0) machine = {PhysicalMemory(), PhysicalMemory()};
  return ProcessMemory(machine).available;
}

absl::Status CheckFitsInMemory(absl::string_view what, double bytes, absl::string_view advice, int64_t available) {
  if (available == 0 || bytes <= static_cast<double>(available)) return absl::OkStatus();
  constexpr double kMost = 9e18;  // of what an int64 holds
  const int64_t usable = UsableMemory();
  const std::string whose = usable < PhysicalMemory()
                                ? absl::StrCat("of the ", FormatBytes(usable), " that this process may have, ",
                                               FormatBytes(available), " are available")
                                : absl::StrCat("this machine has ", FormatBytes(available), " available");
  return absl::ResourceExhaustedError(absl::StrCat(
      what, " take ", FormatBytes(static_cast<int64_t>(std::min(bytes, kMost))), " and ", whose, "; ", advice));
}

}  // namespace kvm
