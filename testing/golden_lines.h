#ifndef TESTING_GOLDEN_LINES_H_
#define TESTING_GOLDEN_LINES_H_

// What a comparison found, one line a quantity.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace kvm {

struct GoldenLine {
  std::string quantity;
  double error = 0;      // the largest
  double tolerance = 0;  // the largest that passes
  std::string worst;     // where that error is; empty when there is none

  bool passed() const { return error <= tolerance; }
};

struct GoldenReport {
  std::string folder;
  std::vector<GoldenLine> lines;

  bool passed() const;
};

// Takes `error` into the line if it is the largest so far. NaN counts as infinity.
void AddError(double error, const std::string& where, GoldenLine* line);

// Takes in all |got − expected| / scale. `shape` is that of both; entries are named "where[0, 3, 1]".
void AddErrors(absl::Span<const float> expected, absl::Span<const float> got, absl::Span<const int64_t> shape,
               double scale, const std::string& where, GoldenLine* line);

// A table: a heading, then quantity, largest error, tolerance, PASS or FAIL, and where the error is.
std::string FormatReport(const GoldenReport& report);

}  // namespace kvm

#endif  // TESTING_GOLDEN_LINES_H_
