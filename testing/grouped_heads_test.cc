// Query heads that share a key/value head compute, to the bit, what they compute with key/value heads of their own that
// have the same weights.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/language_model.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/weight_source.h"
#include "testing/conformance/model_runs.h"
#include "testing/conformance/random_weights.h"
#include "testing/conformance/test_stacks.h"

namespace kvm {
namespace {

constexpr int64_t kTokens = 6 * kTestChunk + 3;

// Weights with some tensors replaced.
class ChangedWeights : public WeightSource {
 public:
  explicit ChangedWeights(const WeightSource& original) : original_(original) {}
  std::string Description() const override { return original_.Description(); }
  std::vector<std::string> Names() const override { return original_.Names(); }
  const TensorView* Find(absl::string_view name) const override {
    const auto found = views_.find(name);
    return found == views_.end() ? original_.Find(name) : &found->second;
  }

  // Repeats each of `heads` equal runs of a tensor's entries along its longest axis `times` times.
  void RepeatHeads(const std::string& name, int64_t heads, int64_t times) {
    const TensorView& from = *original_.Find(name);
    const std::vector<float> values = ReadFloats(from);
    const size_t run = values.size() / heads;
    std::vector<float> repeated;
    for (int64_t i = 0; i < heads * times; ++i) {
      const auto begin = values.begin() + i / times * run;
      repeated.insert(repeated.end(), begin, begin + run);
    }
    Shape shape = from.shape;
    shape[absl::StrContains(name, "v_gate0") ? 2 : 0] *= times;
    tensors_[name] = Tensor::FromFloats(shape, repeated);
    views_[name] = tensors_[name].view();
  }

 private:
  const WeightSource& original_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, TensorView, std::less<>> views_;
};

// Two layers of a mixer whose text has more projection fields for KV.
StackSpec Stack(const std::string& mixer, const std::string& kv) {
  const absl::StatusOr<StackSpec> spec =
      ParseStackSpec(absl::StrCat("vocab_size: 50 width: 32 mlp_expansion: 2 mixers { name: \"m\" ",
                                  absl::StrReplaceAll(mixer, {{"KV", kv}}), " } layers: [\"m\", \"m\"]"),
                     mixer);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : StackSpec();
}

std::vector<float> Logits(const StackSpec& spec, const WeightSource& weights) {
  const auto model = LanguageModel::Create(spec, weights, {});
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  ExecutionContext context(2);
  SequenceState sequence = (*model)->NewSequence();
  const std::vector<int32_t> tokens = TestTokens(spec, kTokens, 1);
  const auto runs = RunInPieces(**model, {{&sequence, tokens, {}}}, context);
  EXPECT_TRUE(runs.ok()) << runs.status();
  return runs.ok() ? (*runs)[0].logits : std::vector<float>();
}

TEST(GroupedHeadsTest, EqualRepeatedKeyValueHeads) {
  const std::string projections = "{ projections { num_heads: 4 rotary_dim: 4 token_shift: true KV } ";
  const std::vector<std::string> mixers = {
      "attention " + projections + "}", "attention " + projections + "window: 5 }",
      "block_window " + projections + "chunk_len: 8 }",
      "kvm " + projections + "chunk_len: 8 budget { growth: POWER_LAW factor: 2 min_rows: 8 max_chunks: 99 } }"};
  for (const std::string& mixer : mixers) {
    SCOPED_TRACE(mixer);
    const StackSpec grouped = Stack(mixer, "num_kv_heads: 2"), repeated = Stack(mixer, "");
    const std::unique_ptr<WeightSource> weights = RandomWeights(grouped, 1);
    ChangedWeights repeated_weights(*weights);
    for (const char* layer : {"0", "1"}) {
      for (const char* tensor :
           {"c_k.weight", "c_v.weight", "x_k", "x_v", "v_gate0", "v_gate2.weight", "key_weighting.weight"}) {
        const std::string name = absl::StrCat("transformer.h.", layer, ".attn.", tensor);
        if (weights->Find(name) != nullptr) repeated_weights.RepeatHeads(name, 2, 2);
      }
    }
    const std::vector<float> logits = Logits(grouped, *weights);
    EXPECT_EQ(logits.size(), static_cast<size_t>(kTokens * grouped.vocab_size()));
    EXPECT_EQ(CountDifferentBits(logits, Logits(repeated, repeated_weights)), 0);
  }
}

}  // namespace
}  // namespace kvm
