// Packed models compute what the models that they were made of compute, to the bit.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kvm/io/tensors/cast_weights.h"
#include "kvm/io/tensors/model_fingerprint.h"
#include "kvm/io/tensors/packed_file.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/model/language_model.h"
#include "kvm/model/stack/model_options.h"
#include "kvm/model/weights/quantized_weights.h"
#include "kvm/state/sequence_state.h"
#include "testing/conformance/model_runs.h"
#include "testing/conformance/random_weights.h"
#include "testing/conformance/test_stacks.h"

namespace kvm {
namespace {

namespace fs = std::filesystem;

// The logits of a test stack's tokens.
std::vector<float> Logits(const LanguageModel& model, const TestStack& stack) {
  ExecutionContext context(1);
  SequenceState sequence = model.NewSequence();
  const std::vector<int32_t> tokens = TestTokens(stack.spec, stack.num_tokens, 5);
  const auto runs = RunInPieces(model, {{&sequence, tokens, {}}}, context);
  EXPECT_TRUE(runs.ok()) << runs.status();
  return (*runs)[0].logits;
}

class PackedModelsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              absl::StrCat("packed_models_", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

  fs::path folder_;
};

// From a packed file and from the tensors that it was made of, for all kinds of stacks and ways to keep weights. The
// source may go away before the model does.
TEST_F(PackedModelsTest, ModelsComputeTheSameBits) {
  for (const TestStack& stack : TestStacks()) {
    const std::unique_ptr<WeightSource> weights = RandomWeights(stack.spec, stack.seed);
    const auto cast = CastWeights(*weights, stack.seed % 2 == 0 ? DType::kF32 : DType::kBF16);
    ASSERT_TRUE(cast.ok());
    ASSERT_TRUE(WritePackedModel(Path(stack.name), stack.spec, **cast, {}).ok());
    for (const WeightType type : {WeightType::kAsStored, WeightType::kF32, WeightType::kBF16}) {
      ModelOptions options;
      options.weights = type;
      const auto expected = LanguageModel::Create(stack.spec, **cast, options);
      ASSERT_TRUE(expected.ok()) << expected.status();
      absl::StatusOr<PackedModel> packed = OpenPackedModel(Path(stack.name));
      ASSERT_TRUE(packed.ok()) << packed.status();
      const auto model = LanguageModel::Create(packed->spec, *packed->weights, options);
      ASSERT_TRUE(model.ok()) << model.status();
      packed->weights.reset();
      EXPECT_EQ(CountDifferentBits(Logits(**model, stack), Logits(**expected, stack)), 0)
          << stack.name << " " << static_cast<int>(type);
    }
  }
}

// Panels of int8: mapped as they are written, in every kind of stack.
TEST_F(PackedModelsTest, Int8ModelsComputeTheSameBits) {
  for (const TestStack& stack : TestStacks()) {
    const std::unique_ptr<WeightSource> weights = RandomWeights(stack.spec, stack.seed);
    const auto int8 = QuantizeWeights(stack.spec, *weights);
    ASSERT_TRUE(int8.ok()) << int8.status();
    ASSERT_TRUE(WritePackedModel(Path(stack.name), stack.spec, **int8, {}).ok());
    for (const WeightType type : {WeightType::kAsStored, WeightType::kI8, WeightType::kF32, WeightType::kBF16}) {
      ModelOptions options;
      options.weights = type;
      const auto expected = LanguageModel::Create(stack.spec, **int8, options);
      ASSERT_TRUE(expected.ok()) << expected.status();
      absl::StatusOr<PackedModel> packed = OpenPackedModel(Path(stack.name));
      ASSERT_TRUE(packed.ok()) << packed.status();
      EXPECT_EQ(ModelFingerprint(packed->spec, *packed->weights), packed->fingerprint);
      EXPECT_EQ(packed->fingerprint, ModelFingerprint(stack.spec, **int8));
      const auto model = LanguageModel::Create(packed->spec, *packed->weights, options);
      ASSERT_TRUE(model.ok()) << model.status();
      packed->weights.reset();
      EXPECT_EQ(CountDifferentBits(Logits(**model, stack), Logits(**expected, stack)), 0)
          << stack.name << " " << static_cast<int>(type);
    }
  }
}

// A tied embedding lies there as rows and as panels.
TEST_F(PackedModelsTest, TiedHeadsComputeTheSameBits) {
  TestStack stack = TestStacks()[0];
  stack.spec.set_tied_head(true);
  const std::unique_ptr<WeightSource> weights = RandomWeights(stack.spec, 3);
  ASSERT_TRUE(WritePackedModel(Path("tied"), stack.spec, *weights, {}).ok());
  const absl::StatusOr<PackedModel> packed = OpenPackedModel(Path("tied"));
  ASSERT_TRUE(packed.ok()) << packed.status();
  const auto expected = LanguageModel::Create(stack.spec, *weights, {});
  const auto model = LanguageModel::Create(packed->spec, *packed->weights, {});
  ASSERT_TRUE(expected.ok() && model.ok());
  EXPECT_EQ(CountDifferentBits(Logits(**model, stack), Logits(**expected, stack)), 0);
}

}  // namespace
}  // namespace kvm
