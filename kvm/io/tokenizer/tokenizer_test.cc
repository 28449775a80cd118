#include "kvm/io/tokenizer/tokenizer.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Token i is pieces[i].
class PieceTokenizer : public Tokenizer {
 public:
  explicit PieceTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}

  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view) const override {
    return absl::UnimplementedError("only decodes");
  }
  absl::string_view TokenBytes(int32_t id) const override { return pieces_[id]; }
  int32_t vocab_size() const override { return static_cast<int32_t>(pieces_.size()); }
  int32_t end_of_text() const override { return -1; }

 private:
  std::vector<std::string> pieces_;
};

// What Add() returns for each piece, then what Finish() returns.
std::vector<std::string> Stream(const std::vector<std::string>& pieces) {
  const PieceTokenizer tokenizer(pieces);
  StreamDecoder decoder(&tokenizer);
  std::vector<std::string> outputs;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) outputs.push_back(decoder.Add(id));
  outputs.push_back(decoder.Finish());
  return outputs;
}

TEST(Decode, JoinsBytesEvenWhenTheyAreNoCharacters) {
  const PieceTokenizer tokenizer({"a", "\xff", "", "\xe2\x82"});
  EXPECT_EQ(*Decode(tokenizer, {3, 0, 2, 1, 0}),
            "\xe2\x82"
            "a\xff"
            "a");
  EXPECT_EQ(*Decode(tokenizer, {}), "");
}

TEST(Decode, RefusesIdsOutsideTheVocabulary) {
  const PieceTokenizer tokenizer({"a", "b"});
  for (int32_t id : {-1, 2, 1 << 30}) {
    const absl::Status status = Decode(tokenizer, {0, id}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("token 1 is " + std::to_string(id)));
    EXPECT_THAT(std::string(status.message()), HasSubstr("0 to 1"));
  }
}

TEST(StreamDecoder, HoldsBackUnfinishedCharacters) {
  EXPECT_THAT(Stream({"a", "\xf0\x9f", "\x98", "\x80!", "z"}), ElementsAre("a", "", "", "\xf0\x9f\x98\x80!", "z", ""));
  EXPECT_THAT(Stream({"x\xe2", "\x82\xac\xe2\x82", "\xac"}), ElementsAre("x", "\xe2\x82\xac", "\xe2\x82\xac", ""));
}

TEST(StreamDecoder, ReplacesEachBrokenPieceOnce) {
  EXPECT_THAT(Stream({"\xff", "a\x80\x80"}), ElementsAre("\uFFFD", "a\uFFFD\uFFFD", ""));
  // F0 9F could have begun a character, 'b' shows that it did not: one replacement for both bytes.
  EXPECT_THAT(Stream({"\xf0\x9f", "b"}), ElementsAre("", "\uFFFDb", ""));
  // A surrogate's three bytes begin nothing.
  EXPECT_THAT(Stream({"\xed", "\xa0", "\x80"}), ElementsAre("", "\uFFFD\uFFFD", "\uFFFD", ""));
}

TEST(StreamDecoder, FinishFlushesOnceAndLeavesACleanStart) {
  const PieceTokenizer tokenizer({"\xf0\x9f\x98", "a"});
  StreamDecoder decoder(&tokenizer);
  EXPECT_EQ(decoder.Add(0), "");
  EXPECT_EQ(decoder.Finish(), "\uFFFD");
  EXPECT_EQ(decoder.Finish(), "");
  EXPECT_EQ(decoder.Add(1), "a");
}

TEST(StreamDecoder, ShowsIdsOutsideTheVocabularyAsReplacement) {
  const PieceTokenizer tokenizer({"a", "\xc3"});
  StreamDecoder decoder(&tokenizer);
  EXPECT_EQ(decoder.Add(2), "\uFFFD");
  EXPECT_EQ(decoder.Add(-1), "\uFFFD");
  EXPECT_EQ(decoder.Add(1), "");
  EXPECT_EQ(decoder.Add(7), "\uFFFD\uFFFD");
  EXPECT_EQ(decoder.Add(0), "a");
}

}  // namespace
}  // namespace kvm
