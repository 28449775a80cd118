#include "kvm/io/tokenizer/patterns/pre_tokenizer.h"

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/io/tokenizer/patterns/oniguruma_pattern.h"

namespace kvm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

SplitStep Split(const std::string& pattern, SplitBehavior behavior = SplitBehavior::kIsolated, bool invert = false) {
  SplitStep step;
  const absl::StatusOr<std::string> translated = TranslateOniguruma(pattern);
  EXPECT_TRUE(translated.ok()) << translated.status();
  step.pattern = *translated;
  step.behavior = behavior;
  step.invert = invert;
  return step;
}

SplitStep PrefixSpace() {
  SplitStep step;
  step.add_prefix_space = true;
  return step;
}

std::vector<std::string> Words(const std::vector<SplitStep>& steps, absl::string_view text) {
  std::vector<std::string> words;
  const absl::StatusOr<PreTokenizer> pre_tokenizer = PreTokenizer::Create(steps);
  EXPECT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.status();
  if (!pre_tokenizer.ok()) return words;
  PreTokenizer::Walk walk(*pre_tokenizer);
  const absl::Status status = walk.ForEachWord(text, [&](absl::string_view word) {
    words.emplace_back(word);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return words;
}

std::vector<SplitStep> Gpt2() {
  return {Split(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)")};
}

TEST(Gpt2Words, CutLettersDigitsAndSigns) {
  EXPECT_THAT(Words(Gpt2(), ""), IsEmpty());
  EXPECT_THAT(Words(Gpt2(), "Hello world42 3.14!?"), ElementsAre("Hello", " world", "42", " 3", ".", "14", "!?"));
  EXPECT_THAT(Words(Gpt2(), "été Ærø²½ 你好。"), ElementsAre("été", " Ærø", "²½", " 你好", "。"));
  EXPECT_THAT(Words(Gpt2(), "it's we'll IT'S x 's"),
              ElementsAre("it", "'s", " we", "'ll", " IT", "'", "S", " x", " '", "s"));
}

TEST(Gpt2Words, LeaveTheLastSpaceToTheWord) {
  EXPECT_THAT(Words(Gpt2(), "  a"), ElementsAre(" ", " a"));
  EXPECT_THAT(Words(Gpt2(), "\n\n  a"), ElementsAre("\n\n ", " a"));
  EXPECT_THAT(Words(Gpt2(), " \na"), ElementsAre(" ", "\n", "a"));
  EXPECT_THAT(Words(Gpt2(), "a   "), ElementsAre("a", "   "));
}

TEST(Gpt2Words, KnowUnicodesSpaces) {
  for (const char* space : {"\u0085", "\u00a0", "\u1680", "\u2000", "\u200a", "\u2028", "\u202f", "\u205f", "\u3000"}) {
    EXPECT_THAT(Words(Gpt2(), std::string("!") + space + "!"), ElementsAre("!", space, "!"));
  }
  for (const char* other : {"\u180e", "\u200b", "\u2060", "\ufeff", "\x1c", "\x1f"}) {
    EXPECT_THAT(Words(Gpt2(), std::string("!") + other + "!"), ElementsAre(std::string("!") + other + "!"));
  }
  EXPECT_THAT(Words(Gpt2(), absl::string_view("\0a", 2)), ElementsAre(std::string(1, '\0'), "a"));
}

// One word as long as the text must neither hit a limit nor take time that grows faster than the text.
TEST(Gpt2Words, MayBeMegabytesLong) {
  for (const std::string unit : {"a", "7", " ", "!", "é", "\u3000", "👩"}) {
    std::string text;
    while (text.size() < (5 << 20)) text += unit;
    EXPECT_THAT(Words(Gpt2(), text), ElementsAre(text));
  }
  const std::string spaces(5 << 20, ' ');
  EXPECT_THAT(Words(Gpt2(), spaces + "a"), ElementsAre(spaces.substr(1), " a"));
}

TEST(Split, DoesWhatItsBehaviorSays) {
  const std::string text = "a--b-c-";
  EXPECT_THAT(Words({Split("-")}, text), ElementsAre("a", "-", "-", "b", "-", "c", "-"));
  EXPECT_THAT(Words({Split("-", SplitBehavior::kRemoved)}, text), ElementsAre("a", "b", "c"));
  EXPECT_THAT(Words({Split("-", SplitBehavior::kMergedWithPrevious)}, text), ElementsAre("a-", "-", "b-", "c-"));
  EXPECT_THAT(Words({Split("-", SplitBehavior::kMergedWithNext)}, text), ElementsAre("a", "-", "-b", "-c", "-"));
  EXPECT_THAT(Words({Split("-", SplitBehavior::kContiguous)}, text), ElementsAre("a", "--", "b", "-", "c", "-"));
  EXPECT_THAT(Words({Split("-", SplitBehavior::kRemoved, true)}, text), ElementsAre("-", "-", "-", "-"));
}

TEST(Split, SeesTheWordsOfTheStepBefore) {
  EXPECT_THAT(Words({Split(" ", SplitBehavior::kRemoved), Split("^.")}, "ab cd"), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(Words({Split(" ", SplitBehavior::kMergedWithNext), PrefixSpace()}, "ab cd"), ElementsAre(" ab", " cd"));
  EXPECT_THAT(Words({Split("b"), PrefixSpace(), Split(" ")}, "ab"), ElementsAre(" ", "a", " ", "b"));
}

TEST(Split, StopsWhenItsUserFails) {
  const absl::StatusOr<PreTokenizer> pre_tokenizer = PreTokenizer::Create({Split("a")});
  ASSERT_TRUE(pre_tokenizer.ok());
  PreTokenizer::Walk walk(*pre_tokenizer);
  int calls = 0;
  const absl::Status status = walk.ForEachWord(
      "aaa", [&](absl::string_view) { return ++calls == 2 ? absl::InternalError("enough") : absl::OkStatus(); });
  EXPECT_EQ(status.message(), "enough");
  EXPECT_EQ(calls, 2);
}

TEST(Split, GivesUpOnPatternsThatExplode) {
  const absl::StatusOr<PreTokenizer> pre_tokenizer = PreTokenizer::Create({Split("(?:a+)+(?:a+)+b")});
  ASSERT_TRUE(pre_tokenizer.ok());
  PreTokenizer::Walk walk(*pre_tokenizer);
  const absl::Status status =
      walk.ForEachWord(std::string(1000, 'a') + "c b", [](absl::string_view) { return absl::OkStatus(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

TEST(PreTokenizer, NamesAPatternThatDoesNotCompile) {
  SplitStep step;
  step.pattern = "(?<=a+)b";
  const absl::Status status = PreTokenizer::Create({step}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(R"(the pattern "(?<=a+)b" does not compile: )"));
}

}  // namespace
}  // namespace kvm
