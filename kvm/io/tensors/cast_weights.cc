#include "kvm/io/tensors/cast_weights.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/tensors/cast.h"
#include "kvm/kernels/tensor.h"

namespace kvm {
namespace {

class ConvertedWeights : public WeightSource {
 public:
  explicit ConvertedWeights(const WeightSource& source) : source_(source) {}

  void Add(const std::string& name, Tensor tensor) {
    views_[name] = tensor.view();
    tensors_.push_back(std::move(tensor));  // moving a tensor leaves its bytes in place
  }

  std::string Description() const override { return source_.Description(); }
  std::vector<std::string> Names() const override { return source_.Names(); }
  const TensorView* Find(absl::string_view name) const override {
    const auto found = views_.find(name);
    return found == views_.end() ? source_.Find(name) : &found->second;
  }

 private:
  const WeightSource& source_;
  std::vector<Tensor> tensors_;
  std::map<std::string, TensorView, std::less<>> views_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WeightSource>> CastWeights(const WeightSource& source, DType dtype) {
  auto weights = std::make_unique<ConvertedWeights>(source);
  for (const std::string& name : source.Names()) {
    if (source.Info(name)->dtype == dtype) continue;
    ASSIGN_OR_RETURN(Tensor cast, CastTensor(*source.Find(name), dtype,
                                             absl::StrCat(source.Description(), ": ", source.NameInFile(name))));
    weights->Add(name, std::move(cast));
  }
  return std::unique_ptr<WeightSource>(std::move(weights));
}

}  // namespace kvm
