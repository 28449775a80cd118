#include "kvm/io/tokenizer/world_tokenizer.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/base/file/mapped_file.h"
#include "nlohmann/json.hpp"

namespace kvm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Vocabulary() {
  const absl::StatusOr<std::string> text = ReadFile("testing/data/tokenizers/world_vocabulary.txt");
  EXPECT_TRUE(text.ok()) << text.status();
  return *text;
}

std::unique_ptr<Tokenizer> MustParse(absl::string_view text) {
  auto tokenizer = ParseWorldVocabulary(text, "vocab.txt");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return std::move(tokenizer).value();
}

// Ids found by trying all tokens, the longest first, at every place.
TEST(WorldTokenizer, EncodesByTheLongestTokenAndDecodes) {
  const auto tokenizer = MustParse(Vocabulary());
  const absl::StatusOr<std::string> lines = ReadFile("testing/data/tokenizers/world_cases.jsonl");
  ASSERT_TRUE(lines.ok()) << lines.status();
  int count = 0;
  for (absl::string_view line : absl::StrSplit(*lines, '\n', absl::SkipEmpty())) {
    const nlohmann::json json = nlohmann::json::parse(line);
    const auto text = json["text"].get<std::string>();
    const auto ids = tokenizer->Encode(text);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, json["ids"].get<std::vector<int32_t>>()) << text;
    EXPECT_EQ(*Decode(*tokenizer, *ids), text);
    StreamDecoder decoder(tokenizer.get());
    std::string streamed;
    for (int32_t id : *ids) streamed += decoder.Add(id);
    EXPECT_EQ(streamed + decoder.Finish(), text);
    ++count;
  }
  EXPECT_EQ(count, 22);
}

TEST(WorldTokenizer, TakesAByteOrderMarkBeforeTheFirstLine) {
  EXPECT_EQ(MustParse("\xEF\xBB\xBF"
                      "7 'ab' 2\n")
                ->TokenBytes(7),
            "ab");
  EXPECT_THAT(std::string(ParseWorldVocabulary("7 'ab' 2\n\xEF\xBB\xBF"
                                               "8 'c' 1\n",
                                               "v")
                              .status()
                              .message()),
              HasSubstr("line 2: the id is"));
}

TEST(WorldTokenizer, HasTheIdsOfTheFormat) {
  const auto tokenizer = MustParse("1 'a' 1\n65535 b'\\xff' 1\r\n7 'a b\\n' 4");
  EXPECT_EQ(tokenizer->vocab_size(), 65536);
  EXPECT_EQ(tokenizer->end_of_text(), 0);
  EXPECT_EQ(tokenizer->TokenBytes(0), "");
  EXPECT_EQ(tokenizer->TokenBytes(1), "a");
  EXPECT_EQ(tokenizer->TokenBytes(2), "");
  EXPECT_EQ(tokenizer->TokenBytes(7), "a b\n");
  EXPECT_EQ(tokenizer->TokenBytes(65535), "\xff");
  EXPECT_EQ(tokenizer->TokenBytes(65536), "");
  EXPECT_EQ(tokenizer->TokenBytes(-1), "");
  EXPECT_THAT(tokenizer->ids_before_text(), IsEmpty());
  EXPECT_THAT(*tokenizer->Encode("aa b\na"), ElementsAre(1, 7, 1));
  EXPECT_EQ(tokenizer->Encode("ab").status().message(), "byte 1 of the text, 0x62, begins no token of the vocabulary");
  EXPECT_EQ(tokenizer->Encode("a\xff").status().message(), "text is not valid UTF-8 at byte 1");
}

TEST(WorldTokenizer, NamesTheLineThatIsWrong) {
  const struct {
    const char* line;
    const char* message;
  } cases[] = {
      {"", "expected an id, a literal and a length"},
      {"2 'b'", "expected an id, a literal and a length"},
      {"0 'b' 1", "the id is \"0\"; expected a number from 1 to 65535"},
      {"65536 'b' 1", "the id is \"65536\"; expected a number from 1 to 65535"},
      {"-2 'b' 1", "the id is \"-2\""},
      {"+2 'b' 1", "the id is \"+2\""},
      {"99999999999999999999 'b' 1", "the id is \"99999999999999999999\""},
      {" 'b' 1", "the id is \"\""},
      {"2 'b' x", "the length is \"x\""},
      {"2 'b' 0", "the length is \"0\""},
      {"2 '' 1", "the literal has 0 bytes; expected 1"},
      {"2 'b' 2", "the literal has 1 bytes; expected 2, the length given"},
      {"2 '\\xe9' 1", "the literal has 2 bytes; expected 1"},
      {"2 b 1", "byte 1 of the literal: expected a quote"},
      {"2 'b 1", "byte 2 of the literal: expected a quote at the end"},
      {"2  'b' 1", "byte 0 of the literal: expected a quote"},
      {"2 'b'  1", "something after the closing quote"},
      {"2 __import__('os') 1", "byte 0 of the literal: expected a quote"},
      {"1 'b' 1", "the id 1 has a token already"},
      {"2 'a' 1", "\"a\" has an id already"},
  };
  for (const auto& c : cases) {
    const absl::Status status = ParseWorldVocabulary(absl::StrCat("1 'a' 1\n", c.line, "\n"), "vocab.txt").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.line;
    EXPECT_THAT(std::string(status.message()), HasSubstr("vocab.txt: line 2: ")) << c.line;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message)) << c.line;
  }
  EXPECT_EQ(ParseWorldVocabulary("", "vocab.txt").status().message(), "vocab.txt: no tokens");
  EXPECT_EQ(ParseWorldVocabulary("1 '\xff' 1", "vocab.txt").status().message(), "vocab.txt: not UTF-8 at byte 3");
}

// Every byte of a short file changed in every way: taken or refused, never worse.
TEST(WorldTokenizer, SurvivesEveryChangedByte) {
  const std::string text = "1 'a' 1\n2 \"\\x41b\" 2\n3 b'\\xff\\n' 2\n";
  int refused = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string changed = text;
      changed[i] = static_cast<char>(byte);
      const auto tokenizer = ParseWorldVocabulary(changed, "vocab.txt");
      if (tokenizer.ok()) {
        EXPECT_EQ((*tokenizer)->vocab_size(), 65536);
      } else {
        ++refused;
        EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr("vocab.txt: "));
      }
    }
    const auto truncated = ParseWorldVocabulary(text.substr(0, i), "vocab.txt");
    if (!truncated.ok()) ++refused;
  }
  EXPECT_GT(refused, 5000);
}

}  // namespace
}  // namespace kvm
