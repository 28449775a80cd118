#ifndef KVM_MODEL_WEIGHTS_TENSOR_PROBLEMS_H_
#define KVM_MODEL_WEIGHTS_TENSOR_PROBLEMS_H_

// What is wrong with the tensors of a model, as one message that names all of them. What is the same in several layers
// is said once, so that a message grows with what a file holds and not with the number of layers that it claims; and so
// is what three or more names share that differ in one number:
//
//   transformer.h.{0..11,14}.attn.r_k: missing, expected shape [2, 16]; transformer.h.{37..4095}: missing entirely;
//   model.layers.{0..31}.mlp.experts.{0..255}.down_proj.weight: unexpected

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/weights/weight_source.h"

namespace kvm {

// A tensor's name taken apart: what stands behind the layer's number, which has no needless zeros.
struct LayerName {
  int layer = 0;
  absl::string_view rest;  // ".attn.r_k", in the name's own bytes
};

// Nothing for names of no layer. `layers` is what stands before the number: "transformer.h.".
std::optional<LayerName> SplitLayerName(absl::string_view name, absl::string_view layers);

// "" for a tensor of floating point numbers that has the shape; otherwise what it is and what was expected.
std::string ProblemOf(const std::optional<TensorInfo>& tensor, const Shape& expected);

// Thread-compatible.
class TensorProblems {
 public:
  // As in SplitLayerName.
  explicit TensorProblems(std::string layers) : layers_(std::move(layers)) {}
  TensorProblems(const TensorProblems&) = delete;
  TensorProblems& operator=(const TensorProblems&) = delete;

  void Add(absl::string_view name, absl::string_view problem);
  // No tensor of a layer is there.
  void AddMissingLayer(int layer);

  bool empty() const { return order_.empty(); }

  // Separated by semicolons, in the order in which the first tensor of each was added.
  std::string Join() const;

 private:
  // The name, or what follows the layers in it, and the problem → the layers in any order; none for names of no layer.
  using Groups = std::map<std::pair<std::string, std::string>, std::vector<int>>;

  std::vector<int>& GroupOf(absl::string_view rest, absl::string_view problem);

  std::string layers_;
  Groups groups_;
  std::vector<const Groups::value_type*> order_;
};

}  // namespace kvm

#endif  // KVM_MODEL_WEIGHTS_TENSOR_PROBLEMS_H_
