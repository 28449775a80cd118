#include "kvm/model/mixers/layer_weights.h"

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace kvm {

const TensorView& LayerWeights::Get(absl::string_view name) const {
  const TensorView* tensor = source_.Find(absl::StrCat(prefix_, name));
  CHECK(tensor != nullptr) << source_.Description() << " has no " << prefix_ << name;
  return *tensor;
}

std::vector<float> LayerWeights::Vector(absl::string_view name) const { return ReadFloats(Get(name)); }

PackedMatrix LayerWeights::Matrix(absl::string_view name) const {
  const TensorView& tensor = Get(name);
  const bool stored_bf16 = tensor.dtype == DType::kBF16;
  const bool bf16 = type_ == WeightType::kBF16 || (type_ == WeightType::kAsStored && stored_bf16);
  return PackedMatrix::Pack(tensor, bf16 ? DType::kBF16 : DType::kF32);
}

}  // namespace kvm
