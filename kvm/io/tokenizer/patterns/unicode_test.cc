#include "kvm/io/tokenizer/patterns/unicode.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

std::string Repeat(absl::string_view unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text.append(unit.data(), unit.size());
  return text;
}

TEST(Characters, AreReadFromBothEndsAndWritten) {
  const struct {
    const char* text;
    int32_t code;
  } cases[] = {{"A", 0x41},
               {"\x7f", 0x7F},
               {"\u0080", 0x80},
               {"é", 0xE9},
               {"\u07ff", 0x7FF},
               {"\u0800", 0x800},
               {"\uffff", 0xFFFF},
               {"\U00010000", 0x10000},
               {"\U0001f469", 0x1F469},
               {"\U0010ffff", 0x10FFFF}};
  for (const auto& c : cases) {
    const std::string text = c.text;
    EXPECT_EQ(FirstCharacter(text + "é").code, c.code);
    EXPECT_EQ(FirstCharacter(text + "é").length, text.size());
    EXPECT_EQ(LastCharacter("é" + text).code, c.code);
    EXPECT_EQ(LastCharacter("é" + text).length, text.size());
    std::string written = "x";
    AppendCharacter(c.code, &written);
    EXPECT_EQ(written, "x" + text);
  }
}

TEST(IsWhiteSpace, FollowsThePropertyList) {
  for (int32_t code : {9, 10, 13, 0x20, 0x85, 0xA0, 0x1680, 0x2000, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}) {
    EXPECT_TRUE(IsWhiteSpace(code)) << code;
  }
  for (int32_t code : {0, 8, 14, 0x1C, 0x1F, 0x21, 0x180E, 0x1FFF, 0x200B, 0x2060, 0xFEFF}) {
    EXPECT_FALSE(IsWhiteSpace(code)) << code;
  }
}

TEST(IsWordCharacter, TakesLettersMarksDigitsConnectorsAndJoiners) {
  for (int32_t code : {0x41, 0x5A, 0x30, 0x5F, 0xE9, 0x301, 0x663, 0x203F, 0x2160, 0x24B6, 0x200D, 0x4E00, 0x1F150}) {
    EXPECT_TRUE(IsWordCharacter(code)) << code;
  }
  for (int32_t code : {0x20, 0x2D, 0x27, 0xB2, 0x2014, 0x20AC, 0x200B, 0x1F469, 0x378}) {
    EXPECT_FALSE(IsWordCharacter(code)) << code;
  }
}

// Expectations from Unicode's tables: UnicodeData, CompositionExclusions.
TEST(ToNfc, ComposesOrdersAndLeavesAlone) {
  const struct {
    const char* text;
    const char* nfc;
  } cases[] = {
      {"", ""},
      {"plain ASCII", "plain ASCII"},
      {"café", "café"},
      {"cafe\u0301s", "caf\u00e9s"},
      {"\u0301e", "\u0301e"},
      {"A\u030a\u212b", "\u00c5\u00c5"},
      {"s\u0307\u0323", "\u1e69"},  // marks out of order
      {"s\u0323\u0307", "\u1e69"},
      {"a\u0315\u0300\u05ae\u0062", "\u00e0\u05ae\u0315b"},
      {"\u0958", "\u0915\u093c"},  // excluded from composition
      {"\u0915\u093c", "\u0915\u093c"},
      {"\u0344", "\u0308\u0301"},
      {"\u1100\u1161\u11a8", "\uac01"},  // Hangul
      {"\uac00\u11a8", "\uac01"},
      {"\uac00\u11a7", "\uac00\u11a7"},  // the one before the final consonants composes with nothing
      {"x\u11a7\u0301", "x\u11a7\u0301"},
      {"\U0001d15e", "\U0001d157\U0001d165"},
      {"\u2126", "\u03a9"},
      {"\uf900", "\u8c48"},
      {"\u4f60\u597d", "\u4f60\u597d"},
      {"e\u0327\u0301", "\u0229\u0301"},
      {"\u00b7\u0387", "\u00b7\u00b7"},
  };
  for (const auto& c : cases) EXPECT_EQ(ToNfc(c.text), c.nfc) << c.text;
}

TEST(MayChangeInNfc, IsFalseOnlyForWhatStays) {
  EXPECT_FALSE(MayChangeInNfc("plain"));
  EXPECT_FALSE(MayChangeInNfc("caf\u00e9 \u01c4 \u02ff"));
  EXPECT_TRUE(MayChangeInNfc("e\u0301"));
  EXPECT_TRUE(MayChangeInNfc("\u212b"));
}

// Marks out of order in one run as long as the text must not take the square of its length.
TEST(ToNfc, OrdersFiveMegabytesOfMarks) {
  constexpr size_t kBytes = 5 << 20;
  const std::string marks = ToNfc("x" + Repeat("\u0301\u0323", kBytes));
  const std::string below = Repeat("\u0323", marks.size() / 2);
  EXPECT_TRUE(marks == "x" + below + Repeat("\u0301", marks.size() / 2));
  EXPECT_EQ(ToNfc(Repeat("e\u0301", kBytes)).size() * 3, Repeat("e\u0301", kBytes).size() * 2);
}

TEST(UnicodeDeathTest, ChecksThatThereAreCharacters) {
  EXPECT_DEATH(FirstCharacter(""), "FirstCharacter: expected text that is not empty");
  EXPECT_DEATH(LastCharacter(""), "LastCharacter: expected text that is not empty");
  EXPECT_DEATH(FirstCharacter("\xE2\x82"), "FirstCharacter: expected text of whole characters");
}

}  // namespace
}  // namespace kvm
