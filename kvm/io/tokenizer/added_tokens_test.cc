#include "kvm/io/tokenizer/added_tokens.h"

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

std::vector<std::pair<std::string, int32_t>> Split(const std::vector<AddedToken>& tokens, absl::string_view text) {
  const AddedTokens added(tokens);
  std::vector<std::pair<std::string, int32_t>> pieces;
  for (const AddedTokens::Piece& piece : added.Split(text)) pieces.emplace_back(piece.text, piece.id);
  return pieces;
}

AddedToken Token(const std::string& content, int32_t id) {
  AddedToken token;
  token.content = content;
  token.id = id;
  return token;
}

TEST(AddedTokens, LeavesTextWithoutTokensWhole) {
  EXPECT_THAT(Split({}, ""), IsEmpty());
  EXPECT_THAT(Split({}, "text"), ElementsAre(Pair("text", -1)));
  EXPECT_THAT(Split({Token("<e>", 5)}, "<e <"), ElementsAre(Pair("<e <", -1)));
}

TEST(AddedTokens, AreFoundAtEdgesAndSideBySide) {
  const std::vector<AddedToken> tokens = {Token("<e>", 5)};
  EXPECT_THAT(Split(tokens, "<e>"), ElementsAre(Pair("<e>", 5)));
  EXPECT_THAT(Split(tokens, "<e><e>a<<e>"),
              ElementsAre(Pair("<e>", 5), Pair("<e>", 5), Pair("a<", -1), Pair("<e>", 5)));
  EXPECT_THAT(Split(tokens, "a<e>b"), ElementsAre(Pair("a", -1), Pair("<e>", 5), Pair("b", -1)));
}

TEST(AddedTokens, TakesTheLongestAtTheEarliestPlace) {
  const std::vector<AddedToken> tokens = {Token("ab", 1), Token("abcd", 2), Token("abc", 3), Token("bcdef", 4)};
  EXPECT_THAT(Split(tokens, "abcdef"), ElementsAre(Pair("abcd", 2), Pair("ef", -1)));
  EXPECT_THAT(Split(tokens, "abcx"), ElementsAre(Pair("abc", 3), Pair("x", -1)));
  EXPECT_THAT(Split(tokens, "xbcdef"), ElementsAre(Pair("x", -1), Pair("bcdef", 4)));
}

TEST(AddedTokens, StripTheWhiteSpaceThatTheyAreToldTo) {
  AddedToken left = Token("<l>", 1), right = Token("<r>", 2);
  left.left_strip = true;
  right.right_strip = true;
  EXPECT_THAT(Split({left, right}, "a \u3000\n<l> b"),
              ElementsAre(Pair("a", -1), Pair(" \u3000\n<l>", 1), Pair(" b", -1)));
  EXPECT_THAT(Split({left, right}, "a <r>\t\u00a0b"),
              ElementsAre(Pair("a ", -1), Pair("<r>\t\u00a0", 2), Pair("b", -1)));
  // What one took the next cannot take again.
  EXPECT_THAT(Split({left, right}, "<r>  <l>"), ElementsAre(Pair("<r>  ", 2), Pair("<l>", 1)));
  EXPECT_THAT(Split({left, right}, "  <l>"), ElementsAre(Pair("  <l>", 1)));
  EXPECT_THAT(Split({left, right}, "<r>  "), ElementsAre(Pair("<r>  ", 2)));
}

TEST(AddedTokens, SingleWordsCountOnlyAlone) {
  AddedToken token = Token("in", 1);
  token.single_word = true;
  EXPECT_THAT(Split({token}, "in(in)-in"),
              ElementsAre(Pair("in", 1), Pair("(", -1), Pair("in", 1), Pair(")-", -1), Pair("in", 1)));
  for (const char* text : {"fin", "ins", "in_", "1in", "éin", "in\u0301", "in\u200d"}) {
    EXPECT_THAT(Split({token}, text), ElementsAre(Pair(text, -1)));
  }
}

TEST(AddedTokens, TakeTheFirstOfTwoAlike) {
  EXPECT_THAT(Split({Token("a", 1), Token("a", 2)}, "a"), ElementsAre(Pair("a", 1)));
}

}  // namespace
}  // namespace kvm
