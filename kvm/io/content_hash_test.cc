#include "kvm/io/content_hash.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "kvm/model/stack.pb.h"
#include "kvm/model/stack_spec.h"

namespace kvm {
namespace {

uint64_t HashOf(const std::string& bytes) {
  ContentHash hash;
  hash.Add(bytes);
  return hash.Value();
}

// The expected values come from a separate program written after docs/formats/packed.md.
TEST(ContentHash, IsAsDocumented) {
  EXPECT_EQ(HashOf(""), 0x58c8bd8350d538cau);
  EXPECT_EQ(HashOf("a"), 0x047cb89ac7d57678u);
  EXPECT_EQ(HashOf(std::string(31, 'a')), 0x80069e1cc7558183u);
  EXPECT_EQ(HashOf(std::string(32, 'a')), 0x076579b421257877u);
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  EXPECT_EQ(HashOf(all), 0xd3aacc33a369f188u);
}

TEST(ContentHash, PiecesDoNotMatter) {
  std::string bytes;
  for (int i = 0; i < 200; ++i) bytes.push_back(static_cast<char>(i * 7));
  for (size_t first : {0, 1, 31, 32, 33, 64, 150, 200}) {
    for (size_t second : {0, 1, 40}) {
      ContentHash hash;
      hash.Add(bytes.substr(0, first));
      hash.Add(bytes.substr(first, second));
      if (first + second < bytes.size()) hash.Add(bytes.substr(first + second));
      EXPECT_EQ(hash.Value(), HashOf(bytes)) << first << " " << second;
    }
  }
}

TEST(ContentHash, SeesEveryBit) {
  const std::string bytes(70, 'x');
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ 1 << bit);
      EXPECT_NE(HashOf(changed), HashOf(bytes)) << i << " " << bit;
    }
  }
  EXPECT_NE(HashOf(bytes + std::string(1, '\0')), HashOf(bytes));
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
