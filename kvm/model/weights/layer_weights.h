#ifndef KVM_MODEL_WEIGHTS_LAYER_WEIGHTS_H_
#define KVM_MODEL_WEIGHTS_LAYER_WEIGHTS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvm/kernels/cpu/matmul.h"
#include "kvm/model/stack/model_options.h"
#include "kvm/model/weights/weight_source.h"

namespace kvm {

// The elements of a tensor as float32: a copy, or borrowed from a source whose memory lasts. Works as a Span does.
class WeightVector {
 public:
  WeightVector() = default;
  explicit WeightVector(std::vector<float> values) : owned_(std::move(values)), view_(owned_) {}
  static WeightVector Borrow(absl::Span<const float> values) {
    WeightVector vector;
    vector.view_ = values;
    return vector;
  }

  // A moved vector keeps its elements where they are.
  WeightVector(WeightVector&&) = default;
  WeightVector& operator=(WeightVector&&) = default;
  WeightVector(const WeightVector&) = delete;
  WeightVector& operator=(const WeightVector&) = delete;

  const float* data() const { return view_.data(); }
  size_t size() const { return view_.size(); }
  bool empty() const { return view_.empty(); }
  float operator[](size_t i) const { return view_[i]; }

  // For what is computed further before it is used.
  operator std::vector<float>() const { return {view_.begin(), view_.end()}; }  // NOLINT: implicit on purpose

 private:
  std::vector<float> owned_;
  absl::Span<const float> view_;
};

// The tensors under one prefix of a weight source that passed CheckWeights: asking for one that is not there is a bug.
// Whoever keeps what it hands out keeps the source's Memory() as well.
class LayerWeights {
 public:
  // `source` must outlive this object. `prefix` ends in '.' or is empty. `type` is not kI8: where weights are to be
  // int8 the source is one that has them so (quantized_weights.h).
  LayerWeights(const WeightSource& source, std::string prefix, WeightType type)
      : source_(source), prefix_(std::move(prefix)), type_(type) {}

  // All elements of a tensor as float32.
  WeightVector Vector(absl::string_view name) const;

  // A matrix [outputs, inputs], packed for products.
  PackedMatrix Matrix(absl::string_view name) const;

 private:
  const TensorView& Get(const std::string& full_name) const;

  const WeightSource& source_;
  std::string prefix_;
  WeightType type_;
};

// Whether the source's view of a tensor outlives the source and holds `dtype` at addresses fit for it.
bool CanBorrow(const WeightSource& source, const TensorView& tensor, DType dtype);

}  // namespace kvm

#endif  // KVM_MODEL_WEIGHTS_LAYER_WEIGHTS_H_
