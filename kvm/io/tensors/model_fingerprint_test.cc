#include "kvm/io/tensors/model_fingerprint.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "kvm/base/file/content_hash.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {
namespace {

uint64_t HashOf(absl::string_view bytes) {
  ContentHash hash;
  hash.Add(bytes);
  return hash.Value();
}

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

StackSpec Spec(const std::string& text) {
  const absl::StatusOr<StackSpec> spec = ParseStackSpec(text, "spec");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : StackSpec();
}

TEST(ModelFingerprint, DependsOnEverything) {
  const StackSpec spec = Spec("mixers { name: \"m\" rwkv7 { num_heads: 2 } } layers: \"m\"");
  const StackSpec other = Spec("mixers { name: \"m\" rwkv7 { num_heads: 4 } } layers: \"m\"");
  const OneTensor a("a", Tensor::FromFloats({2, 1}, {1, 2}));
  const uint64_t fingerprint = ModelFingerprint(spec, a);
  EXPECT_EQ(ModelFingerprint(spec, OneTensor("a", Tensor::FromFloats({2, 1}, {1, 2}))), fingerprint);
  EXPECT_NE(ModelFingerprint(other, a), fingerprint);
  EXPECT_NE(ModelFingerprint(spec, OneTensor("b", Tensor::FromFloats({2, 1}, {1, 2}))), fingerprint);
  EXPECT_NE(ModelFingerprint(spec, OneTensor("a", Tensor::FromFloats({1, 2}, {1, 2}))), fingerprint);
  EXPECT_NE(ModelFingerprint(spec, OneTensor("a", Tensor::FromFloats({2, 1}, {1, 3}))), fingerprint);
}

TEST(ModelFingerprint, DoesNotDependOnHowASpecIsSaid) {
  const StackSpec spec = Spec("mixers { name: \"m\" rwkv7 { num_heads: 2 } } layers: \"m\"");
  const StackSpec same = Spec("mixers { name: \"main\" rwkv7 { num_heads: 2 } } layers: \"main\" mlp_expansion: 4");
  const OneTensor a("a", Tensor::FromFloats({2, 1}, {1, 2}));
  EXPECT_EQ(ModelFingerprint(spec, a), ModelFingerprint(same, a));
  EXPECT_NE(ModelFingerprint(spec, a, SpecForm::kAsWritten), ModelFingerprint(same, a, SpecForm::kAsWritten));
}

// These stand in files. The bytes that are hashed are written out here.
TEST(ModelFingerprint, IsTheHashOfTheseBytes) {
  const StackSpec spec = Spec("width: 32 mixers { name: \"main\" rwkv7 { num_heads: 2 } } layers: \"main\"");
  const auto string = [](const std::string& text) {
    return std::string({char(text.size()), 0, 0, 0, 0, 0, 0, 0}) + text;
  };
  const auto fingerprint = [&](const std::string& mixer) {
    const std::string name = char(mixer.size()) + mixer;
    const std::string rwkv7 = "\x2a\x02\x08\x02";
    const std::string message =
        "\x10\x20\x1a" + std::string(1, char(2 + mixer.size() + 4)) + "\x0a" + name + rwkv7 + "\x22" + name;
    const float element = 1;
    return HashOf(string(message) + string("a") + string("F32[1]") +
                  string(std::string(reinterpret_cast<const char*>(&element), sizeof(element))));
  };
  const OneTensor a("a", Tensor::FromFloats({1}, {1}));
  EXPECT_EQ(ModelFingerprint(spec, a), fingerprint("0"));
  EXPECT_EQ(ModelFingerprint(spec, a, SpecForm::kAsWritten), fingerprint("main"));
}

}  // namespace
}  // namespace kvm
