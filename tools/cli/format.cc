#include "tools/cli/format.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace kvm {

std::string FormatBytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::optional<int64_t> ParseByteSize(absl::string_view text) {
  struct Unit {
    absl::string_view name;
    int64_t bytes;
  };
  // Decimal units as Hugging Face's tools count, and binary ones.
  constexpr Unit kUnits[] = {{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
                             {"KB", 1000},     {"MB", 1000000},  {"GB", 1000000000}};
  constexpr int64_t kMost = int64_t{1} << 50;
  int64_t unit_bytes = 1;
  for (const Unit& unit : kUnits) {
    if (!absl::EndsWithIgnoreCase(text, unit.name)) continue;
    unit_bytes = unit.bytes;
    text.remove_suffix(unit.name.size());
    break;
  }
  int64_t count = 0;
  if (!absl::SimpleAtoi(text, &count) || count < 1 || count > kMost / unit_bytes) return std::nullopt;
  return count * unit_bytes;
}

std::string FormatContext(int64_t tokens) {
  constexpr int64_t kKilo = 1024;
  if (tokens >= kKilo * kKilo && tokens % (kKilo * kKilo) == 0) return absl::StrCat(tokens / (kKilo * kKilo), "M");
  if (tokens >= kKilo && tokens % kKilo == 0) return absl::StrCat(tokens / kKilo, "K");
  return FormatCount(tokens);
}

std::string FormatSeconds(double seconds) {
  if (seconds < 1) return absl::StrFormat("%.0f ms", seconds * 1000);
  if (seconds < 60) return absl::StrFormat("%.1f s", seconds);
  const int64_t whole = std::llround(seconds);
  return absl::StrFormat("%d min %02d s", whole / 60, whole % 60);
}

std::string FormatRate(double rate) {
  if (rate < 10) return absl::StrFormat("%.2f", rate);
  if (rate < 100) return absl::StrFormat("%.1f", rate);
  return FormatCount(std::llround(rate));
}

std::string FormatTable(const std::vector<std::vector<std::string>>& rows) {
  if (rows.empty()) return "";
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const std::vector<std::string>& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      absl::StrAppend(&line, i == 0 ? "" : "  ", i == 0 ? row[i] + padding : padding + row[i]);
    }
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

}  // namespace kvm
