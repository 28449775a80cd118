#include "kvm/model/weights/layer_weights.h"

#include <cassert>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "kvm/base/check.h"

namespace kvm {

const TensorView& LayerWeights::Get(const std::string& full_name) const {
  const TensorView* tensor = source_.Find(full_name);
  if (tensor == nullptr) Check(false, absl::StrCat(full_name, " in ", source_.Description()).c_str());
  return *tensor;
}

WeightVector LayerWeights::Vector(absl::string_view name) const {
  const TensorView& tensor = Get(absl::StrCat(prefix_, name));
  if (!CanBorrow(source_, tensor, DType::kF32)) return WeightVector(ReadFloats(tensor));
  return WeightVector::Borrow({static_cast<const float*>(tensor.data), static_cast<size_t>(tensor.num_elements())});
}

PackedMatrix LayerWeights::Matrix(absl::string_view name) const {
  const std::string full_name = absl::StrCat(prefix_, name);
  const std::optional<TensorInfo> info = source_.Info(full_name);
  const PanelsView* panels = source_.FindPanels(full_name);
  DType storage = type_ == WeightType::kBF16 ? DType::kBF16 : DType::kF32;
  if (type_ == WeightType::kAsStored) {
    if (info.has_value() && info->dtype == DType::kBF16) storage = DType::kBF16;
    if (panels != nullptr && panels->storage == DType::kI8) storage = DType::kI8;
  }
  if (panels != nullptr && panels->storage == storage && source_.Memory() != nullptr) {
    return PackedMatrix::Borrow(*panels);
  }
  assert(storage != DType::kI8);  // whoever has int8 has memory that lasts
  return PackedMatrix::Pack(Get(full_name), storage);
}

bool CanBorrow(const WeightSource& source, const TensorView& tensor, DType dtype) {
  return tensor.dtype == dtype && reinterpret_cast<uintptr_t>(tensor.data) % static_cast<size_t>(SizeOf(dtype)) == 0 &&
         source.Memory() != nullptr;
}

}  // namespace kvm
