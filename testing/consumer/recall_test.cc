#include "recall.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/kernels/tensor.h"

namespace {

std::string Write(const std::string& name, const std::vector<kvm::NamedTensorView>& tensors) {
  const std::string path = ::testing::TempDir() + name;
  EXPECT_EQ(kvm::WriteSafetensors(path, tensors), absl::OkStatus());
  return path;
}

TEST(Recall, IsTheSoftmaxOfQueriesOverKeys) {
  const float ln2 = std::log(2.0f);
  const float ln3 = std::log(3.0f);
  const auto queries = kvm::Tensor::FromFloats({3, 2}, {0, 0, ln2, 0, 0, ln3});
  const auto keys = kvm::Tensor::FromFloats({4, 2}, {0, 0, 1, 0, 0, 1, 1, 1});
  const auto values = kvm::Tensor::FromFloats({4, 2}, {1, 0, 2, 0, 3, 1, 4, -1});
  const auto recalled = Recall(
      Write("memory.safetensors", {{"queries", queries.view()}, {"keys", keys.view()}, {"values", values.view()}}));
  ASSERT_TRUE(recalled.ok()) << recalled.status();
  EXPECT_EQ(recalled->shape(), kvm::Shape({3, 2}));

  // The queries weigh the keys 1:1:1:1, 1:2:1:2 and 1:1:3:3.
  const std::vector<double> expected = {2.5, 0, 16.0 / 6, -1.0 / 6, 3, 0};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(recalled->floats()[i], expected[i], 1e-6) << i;
}

TEST(Recall, NamesTheFileAndTheShapesThatDoNotFit) {
  const auto queries = kvm::Tensor::FromFloats({1, 2}, {0, 0});
  const auto keys = kvm::Tensor::FromFloats({1, 3}, {0, 0, 0});
  const std::string path =
      Write("unfit.safetensors", {{"queries", queries.view()}, {"keys", keys.view()}, {"values", keys.view()}});
  const absl::Status status = Recall(path).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_EQ(status.message(), path + ": queries [1, 2], keys [1, 3] and values [1, 3] do not fit together");
}

TEST(Recall, MissingFilesAndTensorsAreErrors) {
  EXPECT_FALSE(Recall(::testing::TempDir() + "nowhere.safetensors").ok());
  const auto queries = kvm::Tensor::FromFloats({1, 2}, {0, 0});
  EXPECT_TRUE(absl::IsInvalidArgument(Recall(Write("part.safetensors", {{"queries", queries.view()}})).status()));
}

}  // namespace
