#ifndef KVM_MODEL_WEIGHT_SOURCE_H_
#define KVM_MODEL_WEIGHT_SOURCE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "kvm/kernels/tensor.h"

namespace kvm {

// Where a model's tensors come from: a file, an initializer, a test. Names are the published ones
// ("transformer.h.0.attn.c_q.weight").
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // What messages call it: a path, as a rule.
  virtual std::string Description() const = 0;

  // All names, sorted.
  virtual std::vector<std::string> Names() const = 0;

  // Null when there is no such tensor. The view lives as long as this source.
  virtual const TensorView* Find(absl::string_view name) const = 0;
};

}  // namespace kvm

#endif  // KVM_MODEL_WEIGHT_SOURCE_H_
