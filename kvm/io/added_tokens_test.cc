#include "kvm/io/added_tokens.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

std::vector<std::pair<std::string, int32_t>> Split(const AddedTokens& tokens, absl::string_view text) {
  std::vector<std::pair<std::string, int32_t>> pieces;
  for (const AddedTokens::Piece& piece : tokens.Split(text)) pieces.emplace_back(piece.text, piece.id);
  return pieces;
}

TEST(AddedTokens, LeavesTextWithoutTokensWhole) {
  AddedTokens tokens;
  EXPECT_THAT(Split(tokens, ""), IsEmpty());
  EXPECT_THAT(Split(tokens, "text"), ElementsAre(Pair("text", -1)));
  tokens.Add("<e>", 5);
  EXPECT_THAT(Split(tokens, "<e <"), ElementsAre(Pair("<e <", -1)));
}

TEST(AddedTokens, AreFoundAtEdgesAndSideBySide) {
  AddedTokens tokens;
  tokens.Add("<e>", 5);
  EXPECT_THAT(Split(tokens, "<e>"), ElementsAre(Pair("<e>", 5)));
  EXPECT_THAT(Split(tokens, "<e><e>a<<e>"),
              ElementsAre(Pair("<e>", 5), Pair("<e>", 5), Pair("a<", -1), Pair("<e>", 5)));
  EXPECT_THAT(Split(tokens, "a<e>b"), ElementsAre(Pair("a", -1), Pair("<e>", 5), Pair("b", -1)));
}

TEST(AddedTokens, TakesTheLongestAtTheEarliestPlace) {
  AddedTokens tokens;
  tokens.Add("ab", 1);
  tokens.Add("abcd", 2);
  tokens.Add("abc", 3);
  tokens.Add("bcdef", 4);
  EXPECT_THAT(Split(tokens, "abcdef"), ElementsAre(Pair("abcd", 2), Pair("ef", -1)));
  EXPECT_THAT(Split(tokens, "abcx"), ElementsAre(Pair("abc", 3), Pair("x", -1)));
  EXPECT_THAT(Split(tokens, "xbcdef"), ElementsAre(Pair("x", -1), Pair("bcdef", 4)));
}

}  // namespace
}  // namespace kvm
