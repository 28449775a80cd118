#include "kvm/io/tokenizer/python_literal.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

TEST(ParsePythonLiteral, ReadsTextAndBytes) {
  const struct {
    const char* literal;
    std::string bytes;
  } cases[] = {
      {"''", ""},
      {"\"\"", ""},
      {"'a b'", "a b"},
      {"\"it's\"", "it's"},
      {R"('\'"')", "'\""},
      {R"("\"'")", "\"'"},
      {"'é你👩'", "é你👩"},
      {R"('\\n')", "\\n"},
      {R"('\a\b\f\n\r\t\v')", "\a\b\f\n\r\t\v"},
      {R"('\x00\x7f')", std::string("\0\x7f", 2)},
      {R"('\xe9')", "é"},
      {R"('\u00e9\u4f60')", "é你"},
      {R"('\U0001f469')", "👩"},
      {R"('\0\12\1012')", std::string("\0\nA2", 4)},
      {R"('\777')", "\u01ff"},
      {"b''", ""},
      {"b'a\"'", "a\""},
      {R"(b"\xff\x00'")", std::string("\xff\0'", 3)},
      {R"(b'\377\\')", "\xff\\"},
  };
  for (const auto& c : cases) {
    const absl::StatusOr<std::string> bytes = ParsePythonLiteral(c.literal);
    ASSERT_TRUE(bytes.ok()) << c.literal << " " << bytes.status();
    EXPECT_EQ(*bytes, c.bytes) << c.literal;
  }
}

TEST(ParsePythonLiteral, NamesWhatIsWrong) {
  const struct {
    const char* literal;
    const char* message;
  } cases[] = {
      {"", "byte 0 of the literal: expected a quote"},
      {"b", "byte 1 of the literal: expected a quote"},
      {"a'x'", "byte 0 of the literal: expected a quote"},
      {"B'x'", "byte 0 of the literal: expected a quote"},
      {"rb'x'", "expected a quote"},
      {"'x", "byte 2 of the literal: expected a quote at the end"},
      {"'x\"", "expected a quote at the end"},
      {"'", "expected a quote at the end"},
      {"'x' ", "byte 3 of the literal: something after the closing quote"},
      {"'x''y'", "something after the closing quote"},
      {"'\\", "byte 1 of the literal: \"\\\" at the end"},
      {R"('\')", "expected a quote at the end"},
      {R"('\q')", "byte 1 of the literal: an unknown escape"},
      {R"('\N{BULLET}')", "an unknown escape"},
      {R"(b'\u0041')", "an unknown escape"},
      {R"('\8')", "an unknown escape"},
      {R"('\x4')", "an escape with fewer than 2 digits"},
      {R"('\u123')", "an escape with fewer than 4 digits"},
      {R"('\U0001f46')", "an escape with fewer than 8 digits"},
      {R"('\ud83d')", "a number that is no character"},
      {R"('\U00110000')", "a number that is no character"},
      {R"(b'\777')", "a number that is no byte"},
      {"b'é'", "byte 2 of the literal: a character that is no byte"},
  };
  for (const auto& c : cases) {
    const absl::Status status = ParsePythonLiteral(c.literal).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.literal;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message)) << c.literal;
  }
}

}  // namespace
}  // namespace kvm
