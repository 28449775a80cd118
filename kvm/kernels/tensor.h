#ifndef KVM_KERNELS_TENSOR_H_
#define KVM_KERNELS_TENSOR_H_

// Tensor owns aligned memory, TensorView borrows it. Both are dense, row-major and carry dtype and shape.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kvm/kernels/aligned_buffer.h"
#include "kvm/kernels/dtype.h"

namespace kvm {

using Shape = std::vector<int64_t>;

// The product of the extents; 1 for a scalar's empty shape. Extents are nonnegative and the product fits int64.
int64_t NumElements(absl::Span<const int64_t> shape);

// "[2, 3]"; "[]" for a scalar.
std::string ToString(absl::Span<const int64_t> shape);

// Read-only view. `data` may be unaligned (files are mapped): read elements with ReadFloats or memcpy.
struct TensorView {
  DType dtype = DType::kF32;
  Shape shape;
  const void* data = nullptr;

  int64_t num_elements() const { return NumElements(shape); }
  int64_t byte_size() const { return num_elements() * SizeOf(dtype); }
};

// Copies all elements, converted to float32 (F32, BF16, F16, F64 and the integers; exact where float32 can hold it).
std::vector<float> ReadFloats(const TensorView& tensor);

// Zero-initialized, aligned to 64 bytes. Moves cheaply; copies only through Clone().
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, Shape shape);
  // F32 of the given shape with a copy of `values`, which has as many elements as the shape.
  static Tensor FromFloats(Shape shape, absl::Span<const float> values);
  // I64, likewise.
  static Tensor FromInts(Shape shape, absl::Span<const int64_t> values);

  Tensor(Tensor&&) = default;
  Tensor& operator=(Tensor&&) = default;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  Tensor Clone() const;

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t num_elements() const { return NumElements(shape_); }
  int64_t byte_size() const { return num_elements() * SizeOf(dtype_); }
  TensorView view() const { return {dtype_, shape_, bytes()}; }

  const void* bytes() const { return storage_.get(); }
  void* bytes() { return storage_.get(); }
  // The elements as float32; only for DType::kF32.
  absl::Span<const float> floats() const;
  absl::Span<float> floats();
  // The elements as int64; only for DType::kI64.
  absl::Span<const int64_t> ints() const;

 private:
  DType dtype_ = DType::kF32;
  Shape shape_ = {0};
  AlignedBuffer storage_;
};

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

}  // namespace kvm

#endif  // KVM_KERNELS_TENSOR_H_
