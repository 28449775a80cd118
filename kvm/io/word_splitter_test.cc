#include "kvm/io/word_splitter.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Words(absl::string_view text) {
  const absl::StatusOr<WordSplitter> splitter = WordSplitter::Create();
  EXPECT_TRUE(splitter.ok()) << splitter.status();
  WordSplitter::Scanner scanner = splitter->Scan();
  std::vector<std::string> words;
  while (!text.empty()) {
    const absl::StatusOr<size_t> length = scanner.FirstWord(text);
    EXPECT_TRUE(length.ok() && *length > 0) << length.status();
    if (!length.ok() || *length == 0) break;
    words.emplace_back(text.substr(0, *length));
    text.remove_prefix(*length);
  }
  return words;
}

TEST(WordSplitter, CutsLettersDigitsAndSigns) {
  EXPECT_THAT(Words(""), IsEmpty());
  EXPECT_THAT(Words("Hello world42 3.14!?"), ElementsAre("Hello", " world", "42", " 3", ".", "14", "!?"));
  EXPECT_THAT(Words("été Ærø²½ 你好。"), ElementsAre("été", " Ærø", "²½", " 你好", "。"));
  EXPECT_THAT(Words("a_b-c"), ElementsAre("a", "_", "b", "-", "c"));
}

TEST(WordSplitter, CutsContractionsInLowerCase) {
  EXPECT_THAT(Words("it's we'll don't I've they're I'm he'd IT'S"),
              ElementsAre("it", "'s", " we", "'ll", " don", "'t", " I", "'ve", " they", "'re", " I", "'m", " he", "'d",
                          " IT", "'", "S"));
  EXPECT_THAT(Words("x 's"), ElementsAre("x", " '", "s"));
}

TEST(WordSplitter, LeavesTheLastSpaceToTheWord) {
  EXPECT_THAT(Words("  a"), ElementsAre(" ", " a"));
  EXPECT_THAT(Words("\n\n  a"), ElementsAre("\n\n ", " a"));
  EXPECT_THAT(Words(" \na"), ElementsAre(" ", "\n", "a"));
  EXPECT_THAT(Words("a   "), ElementsAre("a", "   "));
  EXPECT_THAT(Words("\t\r\n"), ElementsAre("\t\r\n"));
}

TEST(WordSplitter, KnowsUnicodesSpaces) {
  for (const char* space : {"\u0085", "\u00a0", "\u1680", "\u2000", "\u200a", "\u2028", "\u202f", "\u205f", "\u3000"}) {
    EXPECT_THAT(Words(std::string("!") + space + "!"), ElementsAre("!", space, "!"));
  }
  for (const char* other : {"\u180e", "\u200b", "\u2060", "\ufeff", "\x1c", "\x1f"}) {
    EXPECT_THAT(Words(std::string("!") + other + "!"), ElementsAre(std::string("!") + other + "!"));
  }
  EXPECT_THAT(Words(absl::string_view("\0a", 2)), ElementsAre(std::string(1, '\0'), "a"));
}

// One word as long as the text must neither hit a limit nor take time that grows faster than the text.
TEST(WordSplitter, TakesAMillionOfAnything) {
  for (const std::string unit : {"a", "7", " ", "!", "é", "\u3000", "👩"}) {
    std::string text;
    while (text.size() < 1000000) text += unit;
    EXPECT_THAT(Words(text), ElementsAre(text));
  }
  const std::string spaces(1000000, ' ');
  EXPECT_THAT(Words(spaces + "a"), ElementsAre(spaces.substr(1), " a"));
}

}  // namespace
}  // namespace kvm
