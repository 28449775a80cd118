#ifndef KVM_MODEL_WEIGHT_SOURCE_H_
#define KVM_MODEL_WEIGHT_SOURCE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "kvm/kernels/panels_view.h"
#include "kvm/kernels/tensor.h"

namespace kvm {

struct TensorInfo {
  DType dtype = DType::kF32;
  Shape shape;
};

// Where a model's tensors come from: a file, an initializer, a test. Names are the published ones
// ("transformer.h.0.attn.c_q.weight").
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // What messages call it: a path, as a rule.
  virtual std::string Description() const = 0;

  // All names, sorted.
  virtual std::vector<std::string> Names() const = 0;

  // Null when there is no such tensor. The view lives as long as this source. May make a copy of the tensor, once,
  // where the source keeps it in another order.
  virtual const TensorView* Find(absl::string_view name) const = 0;

  // What the tensor is, without its elements; nothing when there is no such tensor. Always cheap.
  virtual std::optional<TensorInfo> Info(absl::string_view name) const {
    const TensorView* tensor = Find(name);
    if (tensor == nullptr) return std::nullopt;
    return TensorInfo{tensor->dtype, tensor->shape};
  }

  // The same matrix in the order in which products read it, null unless the source has it so. Where its elements are
  // int8 Find() and Info() speak of the float32 numbers that they stand for.
  virtual const PanelsView* FindPanels(absl::string_view) const { return nullptr; }

  // A share in the memory of all views, which keeps them alive when this source is gone; null when they end with it.
  virtual std::shared_ptr<const void> Memory() const { return nullptr; }
};

}  // namespace kvm

#endif  // KVM_MODEL_WEIGHT_SOURCE_H_
