#ifndef KVM_KERNELS_MATRIX_VIEW_H_
#define KVM_KERNELS_MATRIX_VIEW_H_

// What kernels read and write: a borrowed row-major matrix whose rows may lie apart.
//
// Every kernel checks, in every build, that its matrices and spans have the shapes that its header states. One that
// does not fit is a mistake of the calling program: a sentence says what was got and what was expected, and the program
// ends (kvm/base/check.h).

#include <cstdint>
#include <type_traits>
#include <vector>

#include "absl/types/span.h"
#include "kvm/base/standard.h"

namespace kvm {

template <typename T>
struct MatrixView {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements from one row to the next, >= cols

  MatrixView() = default;
  MatrixView(T* data, int64_t rows, int64_t cols) : MatrixView(data, rows, cols, cols) {}
  MatrixView(T* data, int64_t rows, int64_t cols, int64_t stride)
      : data(data), rows(rows), cols(cols), stride(stride) {}

  // A writable view is also a read-only one.
  template <typename U, typename = std::enable_if_t<std::is_same<T, const U>::value>>
  MatrixView(MatrixView<U> other)  // NOLINT: implicit on purpose
      : data(other.data), rows(other.rows), cols(other.cols), stride(other.stride) {}

  T* row(int64_t r) const { return data + r * stride; }
  absl::Span<T> row_span(int64_t r) const { return absl::Span<T>(row(r), static_cast<size_t>(cols)); }
  MatrixView Rows(int64_t begin, int64_t count) const { return {data + begin * stride, count, cols, stride}; }
  MatrixView Cols(int64_t begin, int64_t count) const { return {data + begin, rows, count, stride}; }
};

}  // namespace kvm

#endif  // KVM_KERNELS_MATRIX_VIEW_H_
