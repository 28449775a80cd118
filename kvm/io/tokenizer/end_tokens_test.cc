#include "kvm/io/tokenizer/end_tokens.h"

#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Words : public Tokenizer {
 public:
  explicit Words(std::vector<std::string> words, int32_t end) : words_(std::move(words)), end_(end) {}
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view) const override { return std::vector<int32_t>(); }
  absl::string_view TokenBytes(int32_t id) const override { return words_[static_cast<size_t>(id)]; }
  int32_t vocab_size() const override { return static_cast<int32_t>(words_.size()); }
  int32_t end_of_text() const override { return end_; }

 private:
  std::vector<std::string> words_;
  int32_t end_;
};

TEST(ParseEndTokensTest, TakesANumberAListAndNull) {
  EXPECT_THAT(*ParseEndTokens("7", "s"), ElementsAre(7));
  EXPECT_THAT(*ParseEndTokens("[128009, 128001, 128009]", "s"), ElementsAre(128001, 128009));
  EXPECT_THAT(*ParseEndTokens("null", "s"), IsEmpty());
  EXPECT_THAT(*ParseEndTokens("[]", "s"), IsEmpty());
}

TEST(ParseEndTokensTest, RefusesWhatIsNoId) {
  for (const char* json : {"\"</s>\"", "-1", "1.5", "2147483648", "[1, null]", "[[1]]", "true", "{}"}) {
    const absl::Status status = ParseEndTokens(json, "config.json").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
    EXPECT_THAT(std::string(status.message()), HasSubstr("config.json: eos_token_id is ")) << json;
  }
}

TEST(ReadEndTokensTest, JoinsBothFiles) {
  const std::string path = ::testing::TempDir() + "/generation_config.json";
  std::ofstream(path) << R"({"eos_token_id": [3, 9], "temperature": 0.6})";
  std::vector<std::string> notes;
  EXPECT_THAT(ReadEndTokens({{"eos_token_id", "5"}, {"width", "8"}}, path, &notes), ElementsAre(3, 5, 9));
  EXPECT_THAT(ReadEndTokens({{"eos_token_id", "5"}}, path + ".absent", &notes), ElementsAre(5));
  EXPECT_THAT(ReadEndTokens({}, "", &notes), IsEmpty());
  EXPECT_THAT(notes, IsEmpty());
}

TEST(ReadEndTokensTest, WhatCannotBeReadIsNoted) {
  const std::string path = ::testing::TempDir() + "/broken_generation_config.json";
  std::ofstream(path) << "{";
  std::vector<std::string> notes;
  EXPECT_THAT(ReadEndTokens({{"eos_token_id", "\"x\""}}, path, &notes), IsEmpty());
  EXPECT_THAT(notes, ElementsAre(HasSubstr("config.json: eos_token_id is \"x\""), HasSubstr(path)));
}

TEST(EndTokensOfTest, TurnsEndTexts) {
  EXPECT_THAT(EndTokensOf(Words({"a", "<|eot_id|>", "<|endoftext|>", "<|im_end|>", "<|im_start|>"}, 2)),
              ElementsAre(1, 2, 3));
  EXPECT_THAT(EndTokensOf(Words({"a", "b"}, -1)), IsEmpty());
}

}  // namespace
}  // namespace kvm
