#include "kvm/model/weights/tensor_problems.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

TEST(SplitLayerName, TakesNumbersAsTheyAreWritten) {
  const std::optional<LayerName> split = SplitLayerName("h.12.attn.c_q", "h.");
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->layer, 12);
  EXPECT_EQ(split->rest, ".attn.c_q");
  EXPECT_EQ(SplitLayerName("h.3", "h.")->rest, "");
  for (const char* other : {"wte", "h.", "h.x.a", "h.01.a", "h.-1.a", "h.+1.a", "h. 1.a", "h.99999999999.a"}) {
    EXPECT_FALSE(SplitLayerName(other, "h.").has_value()) << other;
  }
}

TEST(ProblemOf, SaysWhatIsThereAndWhatIsExpected) {
  EXPECT_EQ(ProblemOf(std::nullopt, {2, 3}), "missing, expected shape [2, 3]");
  EXPECT_EQ(ProblemOf(TensorInfo{DType::kF32, {3}}, {2, 3}), "has shape [3], expected [2, 3]");
  EXPECT_EQ(ProblemOf(TensorInfo{DType::kI8, {3}}, {3}), "has dtype I8, expected F32, BF16, F16 or F64");
  EXPECT_EQ(ProblemOf(TensorInfo{DType::kF16, {3}}, {3}), "");
}

TEST(TensorProblems, SaysOnceWhatLayersShare) {
  TensorProblems problems("h.");
  EXPECT_TRUE(problems.empty());
  for (const int layer : {0, 2, 1, 5, 7, 8}) problems.Add(absl::StrCat("h.", layer, ".a"), "missing");
  problems.Add("wte", "missing");
  problems.Add("h.1.a", "has shape [1]");
  problems.Add("h.4.b", "missing");
  problems.Add("h.04.b", "missing");
  EXPECT_FALSE(problems.empty());
  EXPECT_EQ(problems.Join(),
            "h.{0..2,5,7,8}.a: missing; wte: missing; h.1.a: has shape [1]; h.4.b: missing; h.04.b: missing");
}

TEST(TensorProblems, SaysOnceWhatNumberedNamesShare) {
  TensorProblems problems("h.");
  for (int layer = 0; layer < 40; ++layer) {
    for (int expert = 0; expert < 64; ++expert) {
      problems.Add(absl::StrCat("h.", layer, ".experts.", expert, ".w"), "unexpected");
      problems.Add(absl::StrCat("model.layers.", layer, ".experts.", expert, ".w"), "unexpected");
    }
  }
  for (const char* name : {"x1", "x2", "y7", "y8", "y9", "y008", "y99999999999", "z{1}", "z{2}", "z{3"}) {
    problems.Add(name, "unexpected");
  }
  problems.Add("y10", "missing");
  EXPECT_EQ(problems.Join(),
            "h.{0..39}.experts.{0..63}.w: unexpected; model.layers.{0..39}.experts.{0..63}.w: unexpected; "
            "x1: unexpected; x2: unexpected; y{7..9}: unexpected; y008: unexpected; y99999999999: unexpected; "
            "z{1}: unexpected; z{2}: unexpected; z{3: unexpected; y10: missing");
}

TEST(TensorProblems, NamesLayersThatAreNotThere) {
  TensorProblems problems("h.");
  problems.AddMissingLayer(3);
  EXPECT_EQ(problems.Join(), "h.3: missing entirely");
  for (int layer = 37; layer < 4096; ++layer) problems.AddMissingLayer(layer);
  EXPECT_EQ(problems.Join(), "h.{3,37..4095}: missing entirely");
}

}  // namespace
}  // namespace kvm
