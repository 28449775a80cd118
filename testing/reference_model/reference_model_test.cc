// The reference agrees with the published code wherever golden numbers exist, and LanguageModel agrees with the
// reference on every stack of test_stacks.h that it can do, which use much that no golden folder uses.

#include "testing/reference_model/reference_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kvm/io/model_folder.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/model/language_model.h"
#include "testing/conformance/model_runs.h"
#include "testing/conformance/random_weights.h"
#include "testing/conformance/test_stacks.h"
#include "testing/golden_folders.h"

namespace kvm {
namespace {

// The largest |got − expected|; infinity when a value is not finite.
double LargestError(const reference::Rows& expected, const float* got) {
  double largest = 0;
  for (const reference::Row& row : expected) {
    for (const double value : row) {
      const double error = std::abs(static_cast<double>(*got++) - value);
      if (!(error <= largest)) largest = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
    }
  }
  return largest;
}

// Compares the state rows of all KVM layers, which are in the order of `expected`.
void ExpectSameState(const std::vector<NamedTensor>& exported,
                     const std::vector<std::vector<std::vector<reference::StateRow>>>& expected) {
  size_t layer = 0;
  for (const NamedTensor& t : exported) {
    const std::string kind = t.name.substr(t.name.rfind('.') + 1);
    if (kind != "kvm_s_k" && kind != "kvm_s_v" && kind != "kvm_s_vlen") continue;
    ASSERT_LT(layer, expected.size());
    const auto& heads = expected[layer];
    ASSERT_EQ(t.tensor.shape()[0], static_cast<int64_t>(heads.size())) << t.name;
    ASSERT_EQ(t.tensor.shape()[1], static_cast<int64_t>(heads[0].size())) << t.name;
    reference::Rows rows;
    double largest = 0;
    for (const auto& head : heads) {
      for (const reference::StateRow& row : head) {
        rows.push_back(kind == "kvm_s_k" ? row.key : kind == "kvm_s_v" ? row.value : reference::Row{row.radius});
        for (const double value : rows.back()) largest = std::max(largest, std::abs(value));
      }
    }
    EXPECT_LT(LargestError(rows, t.tensor.floats().data()), 1e-5 * largest) << t.name;
    if (kind == "kvm_s_vlen") ++layer;  // the last of the three
  }
  EXPECT_EQ(layer, expected.size());
}

class ReferenceGoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ReferenceGoldenTest, AgreesWithThePublishedCode) {
  const std::string folder = GoldenRoot() + "/" + GetParam();
  const absl::StatusOr<ModelFolder> model = OpenModelFolder(folder);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto golden = SafetensorsFile::Open(folder + "/golden.safetensors");
  ASSERT_TRUE(golden.ok()) << golden.status();
  const TensorView& ids = *(*golden)->Find("input_ids");
  const std::vector<float> all_tokens = ReadFloats(ids);
  const std::vector<float> logits = ReadFloats(*(*golden)->Find("logits_full"));
  const int64_t batch = ids.shape[0], length = ids.shape[1];
  for (int64_t b = 0; b < batch; ++b) {
    const std::vector<int32_t> tokens(all_tokens.begin() + b * length, all_tokens.begin() + (b + 1) * length);
    const reference::ModelRun run = reference::RunModel(model->spec, *model->weights, tokens);
    EXPECT_LT(LargestError(run.logits, logits.data() + b * length * model->spec.vocab_size()), 2e-5);
    EXPECT_GT(run.trace.smallest_gap, 3e-4);
    for (int layer = 0; layer < model->spec.layers_size(); ++layer) {
      const std::vector<float> hidden = ReadFloats(*(*golden)->Find("hidden_after_layer_" + std::to_string(layer)));
      EXPECT_LT(LargestError(run.hidden[layer], hidden.data() + b * length * model->spec.width()), 2e-5) << layer;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReferenceGoldenTest, ::testing::ValuesIn(GoldenFolders()),
                         [](const auto& info) { return info.param; });

class ReferenceStackTest : public ::testing::TestWithParam<TestStack> {};

TEST_P(ReferenceStackTest, LanguageModelAgreesWithTheReference) {
  const TestStack& stack = GetParam();
  const std::unique_ptr<WeightSource> weights = RandomWeights(stack.spec, stack.seed);
  const std::vector<int32_t> tokens = TestTokens(stack.spec, stack.num_tokens, stack.seed);
  const reference::ModelRun expected = reference::RunModel(stack.spec, *weights, tokens);
  // Otherwise rounding could decide where a token goes; then the stack needs another seed.
  ASSERT_GT(expected.trace.smallest_gap, 1e-4);

  const auto model = LanguageModel::Create(stack.spec, *weights, {});
  ASSERT_TRUE(model.ok()) << model.status();
  ExecutionContext context(2);
  SequenceState sequence = (*model)->NewSequence();
  const auto runs = RunInPieces(**model, {{&sequence, tokens, {}}}, context);
  ASSERT_TRUE(runs.ok()) << runs.status();
  for (int layer = 0; layer < stack.spec.layers_size(); ++layer) {
    double largest = 0;
    for (const reference::Row& row : expected.hidden[layer]) {
      for (const double value : row) largest = std::max(largest, std::abs(value));
    }
    EXPECT_LT(LargestError(expected.hidden[layer], (*runs)[0].hidden[layer].data()), 1e-5 * largest) << layer;
  }
  EXPECT_LT(LargestError(expected.logits, (*runs)[0].logits.data()), 5e-5);

  ExpectSameState(sequence.Export().value(), expected.trace.states);
}

INSTANTIATE_TEST_SUITE_P(All, ReferenceStackTest, ::testing::ValuesIn(ReferenceStacks()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kvm
