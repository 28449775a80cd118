#include "tools/machine.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tools/format.h"

namespace kvm {

int64_t PhysicalMemory() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  const int64_t page_size = sysconf(_SC_PAGE_SIZE);
  return pages > 0 && page_size > 0 ? pages * page_size : 0;
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
