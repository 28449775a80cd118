#include "testing/golden_lines.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kvm/kernels/tensor.h"

namespace kvm {
namespace {

// The position of element `index` in a tensor: "[1, 0, 7]".
std::string Position(int64_t index, absl::Span<const int64_t> shape) {
  std::vector<int64_t> position(shape.size());
  for (size_t i = shape.size(); i-- > 0; index /= shape[i]) position[i] = index % shape[i];
  return ToString(position);
}

}  // namespace

bool GoldenReport::passed() const {
  return !lines.empty() &&
         std::all_of(lines.begin(), lines.end(), [](const GoldenLine& line) { return line.passed(); });
}

void AddError(double error, const std::string& where, GoldenLine* line) {
  if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
  if (error <= line->error) return;
  line->error = error;
  line->worst = where;
}

void AddErrors(absl::Span<const float> expected, absl::Span<const float> got, absl::Span<const int64_t> shape,
               double scale, const std::string& where, GoldenLine* line) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i])) / scale;
    if (error <= line->error) continue;  // spares the text
    AddError(
        error,
        absl::StrFormat("%s%s: %g, expected %g", where, Position(static_cast<int64_t>(i), shape), got[i], expected[i]),
        line);
  }
}

std::string FormatReport(const GoldenReport& report) {
  size_t width = 0;
  for (const GoldenLine& line : report.lines) width = std::max(width, line.quantity.size());
  std::string text = absl::StrCat(report.folder, report.passed() ? "" : ": FAIL", "\n");
  for (const GoldenLine& line : report.lines) {
    absl::StrAppendFormat(&text, "  %-*s %9.2g  of %8.2g  %s", static_cast<int>(width), line.quantity, line.error,
                          line.tolerance, line.passed() ? "PASS" : "FAIL");
    if (!line.worst.empty()) absl::StrAppend(&text, "  ", line.worst);
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace kvm
