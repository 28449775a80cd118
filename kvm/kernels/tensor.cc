#include "kvm/kernels/tensor.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvm/base/check.h"
#include "kvm/kernels/bfloat16.h"
#include "kvm/kernels/half.h"

namespace kvm {
namespace {

// Reads out.size() elements of type T from `data`, which may be unaligned, as float32.
template <typename T, typename Convert>
void ReadAs(const void* data, Convert convert, std::vector<float>& out) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < out.size(); ++i) {
    T element;
    std::memcpy(&element, bytes + i * sizeof(T), sizeof(T));
    out[i] = convert(element);
  }
}

template <typename T>
Tensor FromValues(DType dtype, Shape shape, absl::Span<const T> values, CallSite site) {
  CheckEq(values.size(), NumElements(shape), "values.size()", site);
  Tensor tensor(dtype, std::move(shape));
  if (!values.empty()) std::memcpy(tensor.bytes(), values.data(), values.size() * sizeof(T));
  return tensor;
}

}  // namespace

int64_t NumElements(absl::Span<const int64_t> shape) {
  int64_t elements = 1;
  bool fits = true;
  for (const int64_t extent : shape) {
    CheckAtLeast(extent, 0, "extent");
    fits = !__builtin_mul_overflow(elements, extent, &elements) && fits;
  }
  Check(fits, "a number of elements that fits int64");
  return elements;
}

std::string ToString(absl::Span<const int64_t> shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

std::vector<float> ReadFloats(const TensorView& tensor) {
  std::vector<float> out(tensor.num_elements());
  if (out.empty()) return out;
  Check(tensor.data != nullptr, "tensor to have data");
  const auto cast = [](auto x) { return static_cast<float>(x); };
  switch (tensor.dtype) {
    case DType::kBool:
      ReadAs<uint8_t>(
          tensor.data, [](uint8_t x) { return x != 0 ? 1.0f : 0.0f; }, out);
      break;
    case DType::kU8:
      ReadAs<uint8_t>(tensor.data, cast, out);
      break;
    case DType::kI8:
      ReadAs<int8_t>(tensor.data, cast, out);
      break;
    case DType::kI16:
      ReadAs<int16_t>(tensor.data, cast, out);
      break;
    case DType::kU16:
      ReadAs<uint16_t>(tensor.data, cast, out);
      break;
    case DType::kF16:
      ReadAs<uint16_t>(tensor.data, HalfToFloat, out);
      break;
    case DType::kBF16:
      ReadAs<BFloat16>(tensor.data, ToFloat, out);
      break;
    case DType::kI32:
      ReadAs<int32_t>(tensor.data, cast, out);
      break;
    case DType::kU32:
      ReadAs<uint32_t>(tensor.data, cast, out);
      break;
    case DType::kF32:
      std::memcpy(out.data(), tensor.data, out.size() * sizeof(float));
      break;
    case DType::kF64:
      ReadAs<double>(tensor.data, cast, out);
      break;
    case DType::kI64:
      ReadAs<int64_t>(tensor.data, cast, out);
      break;
    case DType::kU64:
      ReadAs<uint64_t>(tensor.data, cast, out);
      break;
  }
  return out;
}

Tensor::Tensor(DType dtype, Shape shape)
    : dtype_(dtype), shape_(std::move(shape)), storage_(AllocateAligned(byte_size())) {
  std::memset(storage_.get(), 0, byte_size());
}

Tensor Tensor::FromFloats(Shape shape, absl::Span<const float> values) {
  return FromValues(DType::kF32, std::move(shape), values, CallSite::Here());
}

Tensor Tensor::FromInts(Shape shape, absl::Span<const int64_t> values) {
  return FromValues(DType::kI64, std::move(shape), values, CallSite::Here());
}

Tensor Tensor::Clone() const {
  Tensor clone;
  clone.dtype_ = dtype_;
  clone.shape_ = shape_;
  if (storage_ != nullptr) {
    clone.storage_ = AllocateAligned(byte_size());
    std::memcpy(clone.bytes(), bytes(), byte_size());
  }
  return clone;
}

absl::Span<const float> Tensor::floats() const {
  Check(dtype_ == DType::kF32, "a tensor of F32");
  return {static_cast<const float*>(bytes()), static_cast<size_t>(num_elements())};
}

absl::Span<float> Tensor::floats() {
  Check(dtype_ == DType::kF32, "a tensor of F32");
  return {static_cast<float*>(bytes()), static_cast<size_t>(num_elements())};
}

absl::Span<const int64_t> Tensor::ints() const {
  Check(dtype_ == DType::kI64, "a tensor of I64");
  return {static_cast<const int64_t*>(bytes()), static_cast<size_t>(num_elements())};
}

}  // namespace kvm
