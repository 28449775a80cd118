#include "kvm/io/identify_model.h"

#include <memory>
#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "kvm/io/model_file.h"
#include "kvm/io/tensors/model_fingerprint.h"
#include "kvm/io/tensors/packed_file.h"
#include "kvm/model/stack/stack_spec.h"
#include "kvm/model/weights/weight_source.h"
#include "testing/conformance/random_weights.h"
#include "testing/conformance/test_stacks.h"

namespace kvm {
namespace {

ModelOptions SomeOptions() {
  ModelOptions options;
  options.weights = WeightType::kBF16;
  options.state = DType::kI8;
  options.chunked_recurrences = true;
  options.provenance = true;
  return options;
}

TEST(IdentifyModel, SaysWhatStatesDependOn) {
  const StackSpec spec = TestStacks()[0].spec;
  const std::unique_ptr<WeightSource> weights = RandomWeights(spec, 1);
  const ModelIdentity identity = IdentifyModel(spec, *weights, std::nullopt, SomeOptions());
  EXPECT_EQ(identity.fingerprint, ModelFingerprint(spec, *weights));
  EXPECT_EQ(identity.weights, WeightType::kBF16);
  EXPECT_EQ(identity.state, DType::kI8);
  EXPECT_TRUE(identity.chunked_recurrences);
  EXPECT_TRUE(identity.provenance);
  EXPECT_EQ(identity.stack, FormatStackSpec(spec));
  EXPECT_EQ(IdentifyModel(spec, *weights, std::nullopt, {}).weights, WeightType::kAsStored);
  EXPECT_NE(IdentifyModel(spec, *RandomWeights(spec, 2), std::nullopt, {}).fingerprint, identity.fingerprint);
}

TEST(IdentifyModel, TakesTheWordOfAPackedModel) {
  const StackSpec spec = TestStacks()[0].spec;
  const std::unique_ptr<WeightSource> weights = RandomWeights(spec, 1);
  EXPECT_EQ(IdentifyModel(spec, *weights, 7, {}).fingerprint, 7u);
  const std::string path = testing::TempDir() + "/identify.kvm";
  ASSERT_TRUE(WritePackedModel(path, spec, *weights, {}).ok());
  const OpenedModel opened = OpenModel(path).value();
  EXPECT_EQ(IdentifyModel(opened.model.spec, *opened.model.weights, opened.fingerprint, {}).fingerprint,
            IdentifyModel(spec, *weights, std::nullopt, {}).fingerprint);
}

}  // namespace
}  // namespace kvm
