#include "testing/fuzz/read_weights.h"

#include <cstdint>
#include <string>

#include "glog/logging.h"
#include "kvm/kernels/tensor.h"

namespace kvm {

void ReadWeights(const WeightSource& weights) {
  for (const std::string& name : weights.Names()) {
    const TensorView* const tensor = weights.Find(name);
    CHECK(tensor != nullptr) << name;
    const auto info = weights.Info(name);
    CHECK(info.has_value() && info->dtype == tensor->dtype && info->shape == tensor->shape) << name;
    const auto* const bytes = static_cast<const volatile uint8_t*>(tensor->data);
    for (int64_t i = 0; i < tensor->byte_size(); ++i) static_cast<void>(bytes[i]);
  }
}

}  // namespace kvm
