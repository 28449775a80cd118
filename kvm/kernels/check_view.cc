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

namespace {

// Whether a matrix without gaps takes up all of its memory, so that any element of another one there is one of its own.
bool IsDense(const ViewShape& shape) { return shape.rows == 1 || shape.stride == shape.cols; }

// Whether a row of `shape` from `rows` on reaches into the memory from `begin` to `end`.
bool ReachesInto(const char* begin, const char* end, const char* rows, const ViewShape& shape, int64_t element) {
  const int64_t cols = shape.cols * element, stride = shape.rows == 1 ? cols : shape.stride * element;
  // The first row that does not end before.
  const int64_t before = begin - (rows + cols);
  const int64_t first = before < 0 ? 0 : before / stride + 1;
  return first < shape.rows && rows + first * stride < end;
}

}  // namespace

bool Interleaved(const char* a, ViewShape of_a, const char* b, ViewShape of_b, int64_t element) {
  if (IsDense(of_a)) return ReachesInto(a, End(a, of_a, element), b, of_b, element);
  if (IsDense(of_b)) return ReachesInto(b, End(b, of_b, element), a, of_a, element);
  if (of_a.stride != of_b.stride) return false;
  // Rows equally far apart: where b begins within a's rows.
  const int64_t stride = of_a.stride * element;
  const int64_t offset = ((b - a) % stride + stride) % stride;
  return offset < of_a.cols * element || offset + of_b.cols * element > stride;
}

}  // namespace check_internal
}  // namespace kvm
