#include "tools/cli/machine.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tools/cli/format.h"

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

int64_t ParseMemAvailable(absl::string_view meminfo) {
  constexpr int64_t kUnit = 1024;
  for (absl::string_view line : absl::StrSplit(meminfo, '\n')) {
    int64_t number = 0;
    if (!absl::ConsumePrefix(&line, "MemAvailable:") || !absl::ConsumeSuffix(&line, "kB")) continue;
    if (!absl::SimpleAtoi(line, &number) || number < 0) return -1;
    return number <= std::numeric_limits<int64_t>::max() / kUnit ? number * kUnit : -1;
  }
  return -1;
}

int64_t AvailableMemory() {
  std::ifstream file("/proc/meminfo");
  std::ostringstream text;
  text << file.rdbuf();
  const int64_t available = ParseMemAvailable(text.str());
  return available >= 0 ? available : PhysicalMemory();
}

absl::Status CheckFitsInMemory(absl::string_view what, double bytes, absl::string_view advice, int64_t available) {
  if (available == 0 || bytes <= static_cast<double>(available)) return absl::OkStatus();
  constexpr double kMost = 9e18;  // of what an int64 holds
  return absl::ResourceExhaustedError(
      absl::StrCat(what, " take ", FormatBytes(static_cast<int64_t>(std::min(bytes, kMost))), " and this machine has ",
                   FormatBytes(available), " available; ", advice));
}

}  // namespace kvm
