#ifndef KVM_MODEL_MIXERS_LAYER_WEIGHTS_H_
#define KVM_MODEL_MIXERS_LAYER_WEIGHTS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "kvm/kernels/cpu/matmul.h"
#include "kvm/model/model_options.h"
#include "kvm/model/weight_source.h"

namespace kvm {

// The tensors under one prefix of a weight source that passed CheckWeights: asking for one that is not there is a bug.
class LayerWeights {
 public:
  // `source` must outlive this object. `prefix` ends in '.' or is empty.
  LayerWeights(const WeightSource& source, std::string prefix, WeightType type)
      : source_(source), prefix_(std::move(prefix)), type_(type) {}

  // All elements of a tensor as float32.
  std::vector<float> Vector(absl::string_view name) const;

  // A matrix [outputs, inputs], packed for products.
  PackedMatrix Matrix(absl::string_view name) const;

 private:
  const TensorView& Get(absl::string_view name) const;

  const WeightSource& source_;
  std::string prefix_;
  WeightType type_;
};

}  // namespace kvm

#endif  // KVM_MODEL_MIXERS_LAYER_WEIGHTS_H_
