#include "kvm/io/model_fingerprint.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/stack.pb.h"

namespace kvm {
namespace {

class OneTensor : public WeightSource {
 public:
  OneTensor(std::string name, Tensor tensor) : name_(std::move(name)), tensor_(std::move(tensor)) {
    view_ = tensor_.view();
  }
  std::string Description() const override { return "test"; }
  std::vector<std::string> Names() const override { return {name_}; }
  const TensorView* Find(absl::string_view name) const override { return name == name_ ? &view_ : nullptr; }

 private:
  std::string name_;
  Tensor tensor_;
  TensorView view_;
};

TEST(ModelFingerprint, DependsOnEverything) {
  StackSpec spec, other;
  other.set_width(32);
  const OneTensor a("a", Tensor::FromFloats({2, 1}, {1, 2}));
  const uint64_t fingerprint = ModelFingerprint(spec, a);
  EXPECT_EQ(ModelFingerprint(spec, OneTensor("a", Tensor::FromFloats({2, 1}, {1, 2}))), fingerprint);
  EXPECT_NE(ModelFingerprint(other, a), fingerprint);
  EXPECT_NE(ModelFingerprint(spec, OneTensor("b", Tensor::FromFloats({2, 1}, {1, 2}))), fingerprint);
  EXPECT_NE(ModelFingerprint(spec, OneTensor("a", Tensor::FromFloats({1, 2}, {1, 2}))), fingerprint);
  EXPECT_NE(ModelFingerprint(spec, OneTensor("a", Tensor::FromFloats({2, 1}, {1, 3}))), fingerprint);
}

}  // namespace
}  // namespace kvm
