#ifndef KVM_KERNELS_CHECK_VIEW_H_
#define KVM_KERNELS_CHECK_VIEW_H_

// Checks of the matrices that a kernel is called with (kvm/base/check.h): a shape that is wrong would be read or
// written past its end. Each costs a few comparisons a call, whatever the size of the matrix.
//
//   CheckView(x, n, w.inputs(), "x");
//   CheckView(out, n, w.outputs(), "out");
//   CheckApart(out, x, "out to share no memory with x");

#include <cstdint>

#include "kvm/base/check.h"
#include "kvm/kernels/matrix_view.h"

namespace kvm {
namespace check_internal {

struct ViewShape {
  int64_t rows;
  int64_t cols;
  int64_t stride;
  bool has_data;
};
[[noreturn, gnu::cold]] void FailView(ViewShape got, int64_t rows, int64_t cols, const char* what, CallSite site);

// Whether matrices whose memory is not in different places have elements in common; false where telling would mean to
// compare row by row.
bool Interleaved(const char* a, ViewShape of_a, const char* b, ViewShape of_b, int64_t element);

inline const char* End(const char* begin, const ViewShape& shape, int64_t element) {
  return begin + ((shape.rows - 1) * shape.stride + shape.cols) * element;
}

inline bool Overlap(const char* a, const ViewShape& of_a, const char* b, const ViewShape& of_b, int64_t element) {
  if (of_a.rows == 0 || of_a.cols == 0 || of_b.rows == 0 || of_b.cols == 0) return false;
  if (End(a, of_a, element) <= b || End(b, of_b, element) <= a) return false;
  return Interleaved(a, of_a, b, of_b, element);
}

template <typename T>
ViewShape ShapeOf(const MatrixView<T>& view) {
  return {view.rows, view.cols, view.stride, view.data != nullptr};
}

}  // namespace check_internal

// `view` is [rows, cols] with rows that do not overlap each other, and has data unless it is empty.
template <typename T>
[[gnu::always_inline]] inline void CheckView(const MatrixView<T>& view, int64_t rows, int64_t cols, const char* what,
                                             CallSite site = CallSite::Here()) {
  const bool shape = view.rows == rows && view.cols == cols && rows >= 0 && cols >= 0;
  const bool empty = rows == 0 || cols == 0;
  const bool memory = empty || (view.data != nullptr && (rows == 1 || view.stride >= cols));
  if (__builtin_expect(!shape || !memory, 0)) {
    check_internal::FailView(check_internal::ShapeOf(view), rows, cols, what, site);
  }
}

// `view` is a matrix of any shape.
template <typename T>
void CheckView(const MatrixView<T>& view, const char* what, CallSite site = CallSite::Here()) {
  CheckView(view, view.rows, view.cols, what, site);
}

// No element of `a` is one of `b`. Views of other columns of one matrix are apart. `expected` as in Check().
template <typename T, typename U>
[[gnu::always_inline]] inline void CheckApart(const MatrixView<T>& a, const MatrixView<U>& b, const char* expected,
                                              CallSite site = CallSite::Here()) {
  const auto shape_a = check_internal::ShapeOf(a), shape_b = check_internal::ShapeOf(b);
  Check(!check_internal::Overlap(reinterpret_cast<const char*>(a.data), shape_a, reinterpret_cast<const char*>(b.data),
                                 shape_b, sizeof(T)),
        expected, site);
}

// `a` and `b` are the same elements, in the same places, or have none in common.
template <typename T, typename U>
void CheckSameOrApart(const MatrixView<T>& a, const MatrixView<U>& b, const char* expected,
                      CallSite site = CallSite::Here()) {
  if (a.data == b.data && (a.stride == b.stride || a.rows <= 1)) return;
  CheckApart(a, b, expected, site);
}

}  // namespace kvm

#endif  // KVM_KERNELS_CHECK_VIEW_H_
