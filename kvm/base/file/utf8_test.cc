#include "kvm/base/file/utf8.h"

#include <string>

#include "gtest/gtest.h"

namespace kvm {
namespace {

struct Case {
  std::string bytes;
  Utf8Kind kind;
  size_t length;
};

TEST(FirstUtf8, ClassifiesTheFront) {
  const Case cases[] = {
      {"a", Utf8Kind::kWhole, 1},
      {"\x7f\x80", Utf8Kind::kWhole, 1},
      {"\xc2\x80", Utf8Kind::kWhole, 2},
      {"\xe0\xa0\x80z", Utf8Kind::kWhole, 3},
      {"\xed\x9f\xbf", Utf8Kind::kWhole, 3},
      {"\xef\xbf\xbf", Utf8Kind::kWhole, 3},
      {"\xf0\x90\x80\x80", Utf8Kind::kWhole, 4},
      {"\xf4\x8f\xbf\xbf", Utf8Kind::kWhole, 4},
      {"\x80", Utf8Kind::kBroken, 1},
      {"\xc1\x81", Utf8Kind::kBroken, 1},          // an overlong 'A'
      {"\xe0\x9f\xbf", Utf8Kind::kBroken, 1},      // overlong
      {"\xed\xa0\x80", Utf8Kind::kBroken, 1},      // a surrogate
      {"\xf0\x8f\xbf\xbf", Utf8Kind::kBroken, 1},  // overlong
      {"\xf4\x90\x80\x80", Utf8Kind::kBroken, 1},  // beyond U+10FFFF
      {"\xf5", Utf8Kind::kBroken, 1},
      {"\xff", Utf8Kind::kBroken, 1},
      {"\xc3z", Utf8Kind::kBroken, 1},
      {"\xe2\x82z", Utf8Kind::kBroken, 2},
      {"\xf0\x9f\x98z", Utf8Kind::kBroken, 3},
      {"\xc3", Utf8Kind::kUnfinished, 1},
      {"\xe2\x82", Utf8Kind::kUnfinished, 2},
      {"\xf0\x9f\x98", Utf8Kind::kUnfinished, 3},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::PrintToString(c.bytes));
    const Utf8Step step = FirstUtf8(c.bytes);
    EXPECT_EQ(step.kind, c.kind);
    EXPECT_EQ(step.length, c.length);
  }
}

TEST(FindInvalidUtf8, GivesTheOffsetOfTheFirstBadByte) {
  EXPECT_EQ(FindInvalidUtf8(""), 0u);
  EXPECT_EQ(FindInvalidUtf8("abc\xe2\x82\xac"), 6u);
  EXPECT_EQ(FindInvalidUtf8("abc\xe2\x82"), 3u);
  EXPECT_EQ(FindInvalidUtf8("\xff"), 0u);
  EXPECT_EQ(FindInvalidUtf8("\xe2\x82\xac\xed\xa0\x80"), 3u);
  EXPECT_EQ(FindInvalidUtf8(std::string(3, '\0')), 3u);
}

TEST(Quoted, ShowsTextAndEscapesTheRest) {
  EXPECT_EQ(Quoted("w"), "\"w\"");
  EXPECT_EQ(Quoted("é\n\""), "\"é\\x0a\\\"\"");
  EXPECT_EQ(Quoted("\x1b\\"), "\"\\x1b\\\\\"");
  EXPECT_EQ(Quoted("é\xff"), "\"é\\xff\"");
  EXPECT_EQ(Quoted("a\xff"), "\"a\\xff\"");
  EXPECT_EQ(Quoted(std::string(201, 'x')), "\"" + std::string(200, 'x') + "...\"");
}

TEST(Printable, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(Printable("plain, \"quoted\" \\ and é"), "plain, \"quoted\" \\ and é");
  EXPECT_EQ(Printable("\x1b[31m\r\n\t\x7f"), "\\x1b[31m\\x0d\\x0a\\x09\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b[0m \xc2\xa0"), "\\xc2\\x9b[0m \xc2\xa0");
  EXPECT_EQ(Printable("a\xff\xc2"), "a\\xff\\xc2");
  EXPECT_EQ(Printable(std::string("\0", 1)), "\\x00");
}

TEST(Printable, CutsLongTextBetweenCharacters) {
  EXPECT_EQ(Printable("abcd", 4), "abcd");
  EXPECT_EQ(Printable("abcde", 4), "abcd...");
  EXPECT_EQ(Printable("abcé", 4), "abc...");
  EXPECT_EQ(Printable(std::string(1000, 'x')).size(), 203u);
}

TEST(FirstUtf8DeathTest, ChecksThatThereIsText) {
  EXPECT_DEATH(FirstUtf8(""), "FirstUtf8: expected text that is not empty");
}

}  // namespace
}  // namespace kvm
