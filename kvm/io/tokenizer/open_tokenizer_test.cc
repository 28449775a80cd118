#include "kvm/io/tokenizer/open_tokenizer.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/file/mapped_file.h"
#include "nlohmann/json.hpp"

namespace kvm {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kFolder[] = "testing/data/tokenizers/";

std::unique_ptr<Tokenizer> MustOpen(const std::string& path) {
  auto tokenizer = OpenTokenizer(path);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return std::move(tokenizer).value();
}

class OfKind : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Tokenizer> Open() {
    const std::string kind = GetParam();
    return MustOpen(absl::StrCat(kFolder, kind, kind == "world" ? "_vocabulary.txt" : ".json"));
  }
};

// What the Hugging Face tokenizers library made of these texts; for the World vocabulary see world_tokenizer_test.
TEST_P(OfKind, EncodesAsTheLibraryDoes) {
  const auto tokenizer = Open();
  const absl::StatusOr<std::string> lines = ReadFile(absl::StrCat(kFolder, GetParam(), "_cases.jsonl"));
  ASSERT_TRUE(lines.ok()) << lines.status();
  int count = 0;
  for (absl::string_view line : absl::StrSplit(*lines, '\n', absl::SkipEmpty())) {
    SCOPED_TRACE(line);
    const nlohmann::json json = nlohmann::json::parse(line);
    const auto ids = tokenizer->Encode(json["text"].get<std::string>());
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, json["ids"].get<std::vector<int32_t>>());
    std::vector<int32_t> whole(tokenizer->ids_before_text().begin(), tokenizer->ids_before_text().end());
    whole.insert(whole.end(), ids->begin(), ids->end());
    EXPECT_EQ(whole, json["with_special"].get<std::vector<int32_t>>());
    ++count;
  }
  EXPECT_EQ(count, 22);
}

// Neither a limit of the matcher nor a time that grows with the square of a word's length.
TEST_P(OfKind, EncodesFiveMegabytesOfOneThing) {
  const auto tokenizer = Open();
  const std::string kind = GetParam();
  for (const std::string unit : {"a", " ", "7", "\u0301", "\u0301\u0323", "👩", " \n"}) {
    std::string text;
    while (text.size() < (5 << 20)) text += unit;
    const auto ids = tokenizer->Encode(text);
    ASSERT_TRUE(ids.ok()) << ids.status();
    const std::string decoded = *Decode(*tokenizer, *ids);
    if (kind == "gpt2" && unit[0] != ' ') {
      EXPECT_TRUE(decoded == " " + text) << unit;
    } else if (unit != "\u0301\u0323") {
      EXPECT_TRUE(decoded == text) << unit;
    } else {
      EXPECT_EQ(decoded.size(), text.size());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, OfKind, testing::Values("gpt2", "llama", "qwen", "steps", "world"),
                         [](const auto& info) { return std::string(info.param); });

TEST(OpenTokenizer, KnowsTheKindByTheContent) {
  const std::string path = testing::TempDir() + "/anything";
  ASSERT_TRUE(WriteFileAtomically(path, "1 'a' 1\n").ok());
  EXPECT_EQ(MustOpen(path)->vocab_size(), 65536);
  ASSERT_TRUE(WriteFileAtomically(path, "1 'a' 2\n").ok());
  EXPECT_THAT(std::string(OpenTokenizer(path).status().message()), HasSubstr(path + ": line 1: "));
  for (const char* broken : {"", "{", "x", "[1]", "\xff"}) {
    ASSERT_TRUE(WriteFileAtomically(path, broken).ok());
    const absl::Status status = OpenTokenizer(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << broken;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  }
  EXPECT_EQ(OpenTokenizer(path + ".absent").status().code(), absl::StatusCode::kNotFound);
}

TEST(OpenTokenizer, TellsWhatModelsAreUsedToHaveBeforeText) {
  const auto llama = MustOpen(absl::StrCat(kFolder, "llama.json"));
  ASSERT_EQ(llama->ids_before_text().size(), 1u);
  EXPECT_EQ(llama->TokenBytes(llama->ids_before_text()[0]), "<|begin_of_text|>");
  EXPECT_THAT(llama->ids_after_text(), IsEmpty());
  EXPECT_EQ(llama->TokenBytes(llama->end_of_text()), "<|end_of_text|>");
}

TEST(OpenTokenizer, KnowsAVocabularyBehindAByteOrderMark) {
  const std::string path = testing::TempDir() + "/marked.txt";
  ASSERT_TRUE(WriteFileAtomically(path,
                                  "\xEF\xBB\xBF"
                                  "1 'a' 1\n")
                  .ok());
  EXPECT_EQ(MustOpen(path)->TokenBytes(1), "a");
}

}  // namespace
}  // namespace kvm
