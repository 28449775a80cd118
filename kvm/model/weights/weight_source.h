#ifndef KVM_MODEL_WEIGHTS_WEIGHT_SOURCE_H_
#define KVM_MODEL_WEIGHTS_WEIGHT_SOURCE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kvm/kernels/panels_view.h"
#include "kvm/kernels/tensor.h"

namespace kvm {

struct TensorInfo {
  DType dtype = DType::kF32;
  Shape shape;
};

// A tensor that was read: its elements are the source's own, or a copy made for the asking.
struct HeldTensor {
  TensorView view;
  Tensor copy;  // empty unless `view` shows it; moving a tensor leaves its bytes in place
};

// How a source keeps a tensor whose elements are of no DType: blocks of quantized numbers.
struct StoredForm {
  std::string type;  // as the source's format calls it: "Q4_1"
  int64_t bytes = 0;
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

  // What messages call one of them: its name in the file, where that is another one.
  virtual std::string NameInFile(absl::string_view name) const { return std::string(name); }

  // Null when there is no such tensor. The view lives as long as this source. May make a copy of the tensor, once,
  // where the source keeps it in another order.
  virtual const TensorView* Find(absl::string_view name) const = 0;

  // What the tensor is, without its elements; nothing when there is no such tensor. Always cheap.
  virtual std::optional<TensorInfo> Info(absl::string_view name) const {
    const TensorView* tensor = Find(name);
    if (tensor == nullptr) return std::nullopt;
    return TensorInfo{tensor->dtype, tensor->shape};
  }

  // How the tensor is kept where that is not what Info() says; nothing elsewhere.
  virtual std::optional<StoredForm> Stored(absl::string_view) const { return std::nullopt; }

  // The tensor, which must be there, for as long as the result and this source live. Unlike Find it keeps no copy, so
  // that reading all tensors one after the other takes the memory of one.
  virtual HeldTensor Read(absl::string_view name) const { return {*Find(name), Tensor()}; }

  // Reads every byte and compares it with the checksums that the source has; OK where it has none. DataLoss or
  // InvalidArgument, naming the file, for a damaged one; Cancelled when `cancelled`, which may be empty and is
  // asked now and then, says so.
  virtual absl::Status CheckContents(const std::function<bool()>& /*cancelled*/) const { return absl::OkStatus(); }

  // The same matrix in the order in which products read it, null unless the source has it so. Where its elements are
  // int8 Find() and Info() speak of the float32 numbers that they stand for.
  virtual const PanelsView* FindPanels(absl::string_view) const { return nullptr; }

  // A share in the memory of all views, which keeps them alive when this source is gone; null when they end with it.
  virtual std::shared_ptr<const void> Memory() const { return nullptr; }
};

}  // namespace kvm

#endif  // KVM_MODEL_WEIGHTS_WEIGHT_SOURCE_H_
