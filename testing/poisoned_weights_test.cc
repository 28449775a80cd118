// A broken weight shows: one NaN in any tensor of any stack makes the logits of a sequence that uses the tensor NaN.
// None may be taken for a mask, a gate that is shut or a row that nobody looks at.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "kvm/kernels/tensor.h"
#include "kvm/model/language_model.h"
#include "kvm/model/stack/model_options.h"
#include "kvm/model/weights/weight_source.h"
#include "testing/conformance/model_runs.h"
#include "testing/conformance/random_weights.h"
#include "testing/conformance/test_stacks.h"

namespace kvm {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// All of another source's tensors, with one element of one of them replaced.
class PoisonedWeights : public WeightSource {
 public:
  PoisonedWeights(const WeightSource& clean, const std::string& name, int64_t element, float poison)
      : clean_(clean), name_(name) {
    const TensorView& tensor = *clean.Find(name);
    tensor_ = Tensor::FromFloats(tensor.shape, ReadFloats(tensor));
    tensor_.floats()[element] = poison;
    view_ = tensor_.view();
  }

  std::string Description() const override { return "poisoned weights"; }
  std::vector<std::string> Names() const override { return clean_.Names(); }
  const TensorView* Find(absl::string_view name) const override { return name == name_ ? &view_ : clean_.Find(name); }

 private:
  const WeightSource& clean_;
  std::string name_;
  Tensor tensor_;
  TensorView view_;
};

// The first element that belongs to a token of the sequence where rows are tokens', else the last of all: what is
// poisoned then lies past the last whole vector as a rule.
int64_t PoisonedElement(absl::string_view name, const Shape& shape, int32_t token) {
  if (absl::EndsWith(name, "wte.weight")) return token * shape[1];
  return NumElements(shape) - 1;
}

// Tensors that take no part in a stack's results, whatever is in them.
bool IsUnused(const std::string& stack, absl::string_view name) {
  // Gates multiply what is merged, and here every token becomes a row of its own.
  return stack == "kvm_all_tokens_become_rows" && absl::EndsWith(name, "attn.key_weighting.weight");
}

// Tensors of which an infinite element makes logits that are not finite. Of the others it may leave finite ones: it
// shuts a gate, ends in σ, tanh or a decay, or is cut off by the activation of the MLP.
bool CarriesInfinity(absl::string_view name) {
  for (const absl::string_view part : {"attn.c_q.", "attn.c_k.", "attn.c_v.", "attn.c_proj.", "mlp.c_proj.", "ln_q.",
                                       "ln_k.", "ln_s_k.", "state_head_temp", "front_head_temp"}) {
    if (absl::StrContains(name, part)) return true;
  }
  return absl::EndsWith(name, "wte.weight");
}

int64_t NumNotFinite(const std::vector<float>& logits) {
  return std::count_if(logits.begin(), logits.end(), [](float x) { return !std::isfinite(x); });
}

class PoisonedWeightsTest : public ::testing::TestWithParam<TestStack> {
 protected:
  // The logits that the model has after all tokens.
  std::vector<float> LastLogits(const WeightSource& weights, DType state) const {
    ModelOptions options;
    options.state = state;
    const auto model = LanguageModel::Create(GetParam().spec, weights, options).value();
    SequenceState sequence = model->NewSequence();
    ExecutionContext context(1);
    const auto runs = RunInPieces(*model, {{&sequence, tokens_, {}}}, context).value();
    return {runs[0].logits.end() - model->vocab_size(), runs[0].logits.end()};
  }

  std::unique_ptr<WeightSource> weights_ = RandomWeights(GetParam().spec, GetParam().seed);
  std::vector<int32_t> tokens_ = TestTokens(GetParam().spec, GetParam().num_tokens, 5);
};

TEST_P(PoisonedWeightsTest, NanInAnyTensorReachesTheLogits) {
  for (const DType state : {DType::kF32, DType::kI8}) {
    ASSERT_EQ(NumNotFinite(LastLogits(*weights_, state)), 0);
    for (const std::string& name : weights_->Names()) {
      if (IsUnused(GetParam().name, name)) continue;
      const Shape& shape = weights_->Find(name)->shape;
      const PoisonedWeights poisoned(*weights_, name, PoisonedElement(name, shape, tokens_.back()), kNaN);
      EXPECT_GT(NumNotFinite(LastLogits(poisoned, state)), 0)
          << name << ToString(shape) << ", states of " << Name(state);
    }
  }
}

TEST_P(PoisonedWeightsTest, InfinityThatNoFunctionBoundsReachesTheLogits) {
  for (const std::string& name : weights_->Names()) {
    if (!CarriesInfinity(name)) continue;
    const Shape& shape = weights_->Find(name)->shape;
    const PoisonedWeights poisoned(*weights_, name, PoisonedElement(name, shape, tokens_.back()), kInfinity);
    EXPECT_GT(NumNotFinite(LastLogits(poisoned, DType::kF32)), 0) << name << ToString(shape);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PoisonedWeightsTest, ::testing::ValuesIn(TestStacks()),
                         [](const ::testing::TestParamInfo<TestStack>& info) { return info.param.name; });

}  // namespace
}  // namespace kvm
