#ifndef KVM_TOOLS_CLI_FORMAT_H_
#define KVM_TOOLS_CLI_FORMAT_H_

// Numbers and tables as people read them.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "kvm/base/format_count.h"

namespace kvm {

// "512 B", "1.5 KiB", "24.0 MiB", ...: three or four digits.
std::string FormatBytes(int64_t bytes);

// The number of bytes in a text as kByteSizes says; none in any other, and in "0".
std::optional<int64_t> ParseByteSize(absl::string_view text);
inline constexpr char kByteSizes[] = "bytes such as 5GB, 500MB or 2GiB, at least 1 and at most 1048576GiB";

// "512", "1K", "16K", "1M" for multiples of 1024, otherwise as FormatCount.
std::string FormatContext(int64_t tokens);

// "850 ms", "12.3 s", "4 min 05 s".
std::string FormatSeconds(double seconds);

// "3.21", "45.1", "1,234": three digits at least.
std::string FormatRate(double rate);

// Rows of cells as lines: the first column to the left, all others to the right, two spaces between columns. All rows
// have as many cells as the first.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace kvm

#endif  // KVM_TOOLS_CLI_FORMAT_H_
