#include "kvm/kernels/check_view.h"

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace kvm {
namespace check_internal {

void FailView(ViewShape got, int64_t rows, int64_t cols, const char* what, CallSite site) {
  if (got.rows != rows || got.cols != cols) {
    std::fprintf(stderr, "%s: %s is [%" PRId64 ", %" PRId64 "], expected [%" PRId64 ", %" PRId64 "] (%s:%d)\n",
                 site.function, what, got.rows, got.cols, rows, cols, site.file, site.line);
  } else if (rows < 0 || cols < 0) {
    std::fprintf(stderr, "%s: %s is [%" PRId64 ", %" PRId64 "], expected no negative extent (%s:%d)\n", site.function,
                 what, rows, cols, site.file, site.line);
  } else if (!got.has_data) {
    std::fprintf(stderr, "%s: %s is [%" PRId64 ", %" PRId64 "] at a null address, expected memory (%s:%d)\n",
                 site.function, what, rows, cols, site.file, site.line);
  } else {
    std::fprintf(stderr,
                 "%s: rows of %s are %" PRId64 " elements apart, expected at least its %" PRId64 " columns (%s:%d)\n",
                 site.function, what, got.stride, cols, site.file, site.line);
  }
  std::abort();
}

bool Overlap(const char* a, ViewShape of_a, const char* b, ViewShape of_b, int64_t element) {
  if (of_a.rows == 0 || of_a.cols == 0 || of_b.rows == 0 || of_b.cols == 0) return false;
  const auto end = [element](const char* begin, const ViewShape& shape) {
    return begin + ((shape.rows - 1) * shape.stride + shape.cols) * element;
  };
  if (end(a, of_a) <= b || end(b, of_b) <= a) return false;
  if (of_a.rows == 1 || of_b.rows == 1 || of_a.stride != of_b.stride) {
    // A single row may lie between two of the other's columns; what one row takes up is all there is to it.
    return of_a.rows == 1 && of_b.rows == 1;
  }
  // Rows equally far apart: where b begins within a's rows.
  const int64_t stride = of_a.stride * element;
  const int64_t offset = ((b - a) % stride + stride) % stride;
  return offset < of_a.cols * element || offset + of_b.cols * element > stride;
}

}  // namespace check_internal
}  // namespace kvm
