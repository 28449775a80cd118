#include "testing/conformance/random_weights.h"

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/weights/parameters.h"

namespace kvm {
namespace {

class TensorMap : public WeightSource {
 public:
  std::string Description() const override { return "random weights"; }
  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& [name, view] : views_) names.push_back(name);
    return names;
  }
  const TensorView* Find(absl::string_view name) const override {
    const auto found = views_.find(name);
    return found == views_.end() ? nullptr : &found->second;
  }

  void Add(const std::string& name, Tensor tensor) {
    views_[name] = tensor.view();
    tensors_.push_back(std::move(tensor));
  }

 private:
  std::vector<Tensor> tensors_;
  std::map<std::string, TensorView, std::less<>> views_;
};

// One step of a linear congruential generator (Knuth's MMIX constants), uniform in [−1, 1).
double NextUniform(uint64_t* state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<double>(*state >> 11) * 0x1p-52 - 1;
}

}  // namespace

std::unique_ptr<WeightSource> RandomWeights(const StackSpec& spec, uint64_t seed, const MixerKinds& kinds) {
  auto weights = std::make_unique<TensorMap>();
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (int i = 0; i < 8; ++i) NextUniform(&state);
  for (const Parameter& parameter : StackParameters(spec, kinds)) {
    // Matrices keep the scale of what they multiply; everything else lies between 0.5 and 1, biases around 0.
    double center = 0.75, range = 0.25;
    if (parameter.shape.size() == 2 && absl::EndsWith(parameter.name, ".weight")) {
      center = 0;
      range = std::sqrt(3.0 / static_cast<double>(parameter.shape[1]));
    } else if (absl::EndsWith(parameter.name, ".bias")) {
      center = 0;
      range = 0.2;
    }
    std::vector<float> values(NumElements(parameter.shape));
    for (float& v : values) v = static_cast<float>(center + range * NextUniform(&state));
    weights->Add(parameter.name, Tensor::FromFloats(parameter.shape, values));
  }
  return weights;
}

}  // namespace kvm
