#include "kvm/io/tokenizer/patterns/oniguruma_pattern.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/io/tokenizer/patterns/pre_tokenizer.h"
#include "nlohmann/json.hpp"

namespace kvm {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

SplitBehavior Behavior(const std::string& name) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  EXPECT_EQ(name, "Isolated");
  return SplitBehavior::kIsolated;
}

std::vector<std::string> Words(const SplitStep& step, absl::string_view text) {
  std::vector<std::string> words;
  const absl::StatusOr<PreTokenizer> pre_tokenizer = PreTokenizer::Create({step});
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

// What the Hugging Face tokenizers library, which uses Oniguruma, made of these texts.
TEST(TranslateOniguruma, SplitsAsTheLibraryDoes) {
  const absl::StatusOr<std::string> lines = ReadFile("testing/data/tokenizers/splits.jsonl");
  ASSERT_TRUE(lines.ok()) << lines.status();
  int count = 0;
  for (absl::string_view line : absl::StrSplit(*lines, '\n', absl::SkipEmpty())) {
    SCOPED_TRACE(line);
    const Json json = Json::parse(line);
    const Json& pattern = json["step"]["pattern"];
    SplitStep step;
    if (pattern.contains("Regex")) {
      const absl::StatusOr<std::string> translated = TranslateOniguruma(pattern["Regex"].get<std::string>());
      ASSERT_TRUE(translated.ok()) << translated.status();
      step.pattern = *translated;
    } else {
      step.pattern = LiteralPattern(pattern["String"].get<std::string>());
    }
    step.behavior = Behavior(json["step"]["behavior"]);
    step.invert = json["step"]["invert"];
    ASSERT_EQ(Words(step, json["text"].get<std::string>()), json["words"].get<std::vector<std::string>>())
        << step.pattern;
    ++count;
  }
  EXPECT_EQ(count, 540);
}

TEST(TranslateOniguruma, NamesWhatItDoesNotTake) {
  const struct {
    const char* pattern;
    const char* message;
  } cases[] = {
      {"a)", "byte 1 of the pattern: \")\" closes no group"},
      {"(a", "byte 0 of the pattern: \"(\" without \")\""},
      {"[a", "byte 0 of the pattern: \"[\" without \"]\""},
      {"x[]", "byte 2 of the pattern: a class of nothing"},
      {"\xff", "byte 0 of the pattern: is not UTF-8"},
      {"*a", "byte 0 of the pattern: a quantifier of nothing"},
      {"a|+", "byte 2 of the pattern: a quantifier of nothing"},
      {"{2}", "byte 0 of the pattern: a quantifier of nothing"},
      {"a{2}?", "byte 1 of the pattern: \"{n}?\" is not supported"},
      {"a+{2}", "byte 5 of the pattern: a quantifier of a quantifier"},
      {"a+?*", "byte 3 of the pattern: a quantifier of a quantifier"},
      {"^+", "byte 1 of the pattern: a quantifier of a place"},
      {"(?=a)*", "byte 5 of the pattern: a quantifier of a place"},
      {R"((a)\1)", R"(byte 3 of the pattern: "\1" is not supported)"},
      {R"(\b)", R"("\b" is not supported)"},
      {R"(\R)", R"("\R" is not supported)"},
      {R"(\G)", R"("\G" is not supported)"},
      {R"(\K)", R"("\K" is not supported)"},
      {R"([\z])", R"("\z" is not supported)"},
      {"\\", "byte 0 of the pattern: \"\\\" at the end"},
      {R"(\pL)", "expected the name of a property in braces"},
      {R"(\p{L)", "expected the name of a property in braces"},
      {R"(\p{Klingon})", R"(the property "Klingon" is not supported)"},
      {R"(\xe9)", "a byte that is no character"},
      {R"(\x4)", "too few hexadecimal digits"},
      {R"(\u12)", "too few hexadecimal digits"},
      {R"(\x{})", "no hexadecimal digits"},
      {R"(\x{110000})", "not a character"},
      {R"(\ud800)", "not a character"},
      {"(?<n>a)", "byte 0 of the pattern: this kind of group is not supported"},
      {"(?#a)", "this kind of group is not supported"},
      {"(?m:a)", "this kind of group is not supported"},
      {"a(?i)b", "this kind of group is not supported"},
      {"(?*", "this kind of group is not supported"},
      {"(*UTF)", "a quantifier of nothing"},
      {"[a&&b]", "byte 2 of the pattern: \"&&\" is not supported"},
      {"[[:alpha:]]", "\"[:\" is not supported"},
      {"[a[^b]]", "a complement inside a class is not supported"},
      {R"([\W])", "a complement inside a class is not supported"},
      {R"([\w-a])", "a range from a class"},
      {R"([a-\d])", "a range whose end comes before its begin"},
      {"[z-a]", "a range whose end comes before its begin"},
      {"[a-z-9]", "\"-\" in the middle of a class"},
      {"[a-", "\"[\" without \"]\""},
      {"(?i:\u00e9)", "characters beyond ASCII regardless of case"},
      {"(?i:[\u00e9])", "characters beyond ASCII regardless of case"},
      {"(?i:STRASSE)", "byte 5 of the pattern: \"st\" regardless of case"},
      {"(?i)off", "\"ff\" regardless of case"},
      {R"((?i:\p{Lu}))", "classes of letters regardless of case"},
      {R"((?i:[\w]))", "classes of letters regardless of case"},
  };
  for (const auto& c : cases) {
    const absl::Status status = TranslateOniguruma(c.pattern).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.pattern;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message)) << c.pattern;
  }
}

TEST(TranslateOniguruma, RefusesGroupsWithoutMeasure) {
  EXPECT_THAT(std::string(TranslateOniguruma(std::string(100000, '(')).status().message()), HasSubstr("too deep"));
  EXPECT_THAT(std::string(TranslateOniguruma(std::string(100000, '[')).status().message()), HasSubstr("too deep"));
}

// Every beginning of a pattern is taken or refused, and what is taken compiles or is refused then.
TEST(TranslateOniguruma, SurvivesEveryTruncation) {
  const std::string pattern =
      R"((?i:'s|x)|[^\r\n\p{L}[a-c\x{e9}]]?+(?<!a)\p{N}{1,3}+(?>\w{,2}?|\u0041)$| ?[^\s\p{^L}]+[\r\n]*|\s+(?!\S))";
  for (size_t begin = 0; begin < pattern.size(); ++begin) {
    for (size_t size = 0; begin + size <= pattern.size(); ++size) {
      const absl::StatusOr<std::string> translated = TranslateOniguruma(pattern.substr(begin, size));
      if (!translated.ok()) continue;
      SplitStep step;
      step.pattern = *translated;
      const auto compiled = PreTokenizer::Create({step});
      EXPECT_TRUE(compiled.ok()) << pattern.substr(begin, size) << " " << compiled.status();
    }
  }
}

}  // namespace
}  // namespace kvm
