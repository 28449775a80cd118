#include "kvm/model/cpu/token_embedding.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kvm/kernels/bfloat16.h"
#include "kvm/kernels/int8_panels.h"
#include "kvm/model/weights/layer_weights.h"

namespace kvm {
namespace {

constexpr char kEmbedding[] = "transformer.wte.weight";

}  // namespace

TokenEmbedding::TokenEmbedding(const WeightSource& weights, WeightType type) {
  const PanelsView* const panels = weights.FindPanels(kEmbedding);
  if (type == WeightType::kAsStored && panels != nullptr && panels->storage == DType::kI8) {
    panels_ = *panels;
    return;
  }
  const TensorView& tensor = *weights.Find(kEmbedding);
  const bool bf16 = type == WeightType::kBF16 || (type == WeightType::kAsStored && tensor.dtype == DType::kBF16);
  rows_ = tensor;
  if (CanBorrow(weights, tensor, bf16 ? DType::kBF16 : DType::kF32)) return;
  if (!bf16) {
    owned_ = Tensor::FromFloats(tensor.shape, ReadFloats(tensor));
  } else if (tensor.dtype == DType::kBF16) {
    owned_ = Tensor(DType::kBF16, tensor.shape);
    std::memcpy(owned_.bytes(), tensor.data, tensor.byte_size());
  } else {
    owned_ = Tensor(DType::kBF16, tensor.shape);
    const std::vector<float> values = ReadFloats(tensor);
    std::transform(values.begin(), values.end(), static_cast<BFloat16*>(owned_.bytes()), ToBFloat16);
  }
  rows_ = owned_.view();
}

void TokenEmbedding::CopyRow(int64_t token, absl::Span<float> out) const {
  const int64_t width = static_cast<int64_t>(out.size());
  if (panels_.data != nullptr) {
    CopyInt8Row(panels_, token, out);
    return;
  }
  if (rows_.dtype == DType::kF32) {
    std::copy_n(static_cast<const float*>(rows_.data) + token * width, width, out.begin());
    return;
  }
  const BFloat16* const row = static_cast<const BFloat16*>(rows_.data) + token * width;
  std::transform(row, row + width, out.begin(), [](BFloat16 x) { return ToFloat(x); });
}

}  // namespace kvm
