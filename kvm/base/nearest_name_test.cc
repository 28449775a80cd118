#include "kvm/base/nearest_name.h"

#include "gtest/gtest.h"

namespace kvm {
namespace {

TEST(EditDistanceTest, CountsEachKindOfEdit) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("width", "width"), 0);
  EXPECT_EQ(EditDistance("width", "wdth"), 1);
  EXPECT_EQ(EditDistance("width", "widdth"), 1);
  EXPECT_EQ(EditDistance("width", "wibth"), 1);
  EXPECT_EQ(EditDistance("width", "widht"), 1);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
}

TEST(NearestNameTest, FindsSlipsAndBeginningsOnly) {
  const std::vector<std::string> names = {"generate", "tokenize", "detokenize"};
  EXPECT_EQ(NearestName("genrate", names), "generate");
  EXPECT_EQ(NearestName("gen", names), "generate");
  EXPECT_EQ(NearestName("tokenise", names), "tokenize");
  EXPECT_EQ(NearestName("frobnicate", names), "");
  EXPECT_EQ(DidYouMean("genrate", names, "--"), "; did you mean --generate?");
  EXPECT_EQ(DidYouMean("xyz", names, "--"), "");
}

}  // namespace
}  // namespace kvm
