#include "kvm/model/weights/initializer.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kvm/kernels/matrix_view.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/weights/orthogonal.h"
#include "kvm/model/weights/parameters.h"
#include "kvm/model/weights/random_stream.h"

namespace kvm {
namespace {

class InitializedWeights : public WeightSource {
 public:
  explicit InitializedWeights(uint64_t seed) : description_(absl::StrCat("new weights of seed ", seed)) {}

  void Add(const std::string& name, Tensor tensor) {
    views_[name] = tensor.view();
    tensors_.push_back(std::move(tensor));
  }

  std::string Description() const override { return description_; }

  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& entry : views_) names.push_back(entry.first);
    return names;
  }

  const TensorView* Find(absl::string_view name) const override {
    const auto found = views_.find(name);
    return found == views_.end() ? nullptr : &found->second;
  }

 private:
  std::string description_;
  std::vector<Tensor> tensors_;  // own what the views show; moving a tensor leaves its bytes in place
  std::map<std::string, TensorView, std::less<>> views_;
};

// Sets element i to element(i) for every i, over the pool, unless cancelled.
void FillElements(absl::Span<float> values, ThreadPool& pool, absl::FunctionRef<bool()> cancelled,
                  absl::FunctionRef<double(int64_t)> element) {
  constexpr int64_t kGrain = 4096;
  pool.ParallelForRanges(static_cast<int64_t>(values.size()), kGrain, [&](int64_t begin, int64_t end) {
    if (cancelled()) return;
    for (int64_t i = begin; i < end; ++i) values[static_cast<size_t>(i)] = static_cast<float>(element(i));
  });
}

Tensor Draw(const Parameter& parameter, const InitializerOptions& options, ThreadPool& pool) {
  Tensor tensor(DType::kF32, parameter.shape);
  const RandomStream random(options.seed, parameter.name);
  const Initialization& initialization = parameter.initialization;
  double gain = initialization.scale;
  if (parameter.is_block_output) {
    if (options.block_output_gain <= 0) return tensor;
    gain *= options.block_output_gain;
  }
  switch (initialization.kind) {
    case Initialization::Kind::kFill:
      FillElements(tensor.floats(), pool, options.cancelled, [&](int64_t) { return initialization.scale; });
      break;
    case Initialization::Kind::kUniform:
      FillElements(tensor.floats(), pool, options.cancelled,
                   [&](int64_t i) { return initialization.scale * (2 * random.Uniform(i) - 1); });
      break;
    case Initialization::Kind::kOrthogonal:
      FillOrthogonal(random, gain, MatrixView<float>(tensor.floats().data(), parameter.shape[0], parameter.shape[1]),
                     pool, options.cancelled);
      break;
    case Initialization::Kind::kValues:
      FillElements(tensor.floats(), pool, options.cancelled, initialization.value);
      break;
  }
  return tensor;
}

}  // namespace

std::unique_ptr<WeightSource> InitializeWeights(const StackSpec& spec, const InitializerOptions& options,
                                                ThreadPool& pool, const MixerKinds& kinds) {
  auto weights = std::make_unique<InitializedWeights>(options.seed);
  for (const Parameter& parameter : StackParameters(spec, kinds)) {
    if (options.cancelled()) return nullptr;
    if (options.wanted != nullptr && !options.wanted(parameter.name)) continue;
    weights->Add(parameter.name, Draw(parameter, options, pool));
  }
  if (options.cancelled()) return nullptr;  // and the last ones may be unfinished
  return weights;
}

}  // namespace kvm
