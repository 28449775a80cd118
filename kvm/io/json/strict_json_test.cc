#include "kvm/io/json/strict_json.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ParseStrictJson, BuildsTheValue) {
  const auto parsed = ParseStrictJson(
      R"( {"a":[1,-2,0.5,"s",true,null,[],{}],"b":{"c":{"d":18446744073709551615}},"\u00e9":[[[3]],{"x":4}]} )", "f");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const nlohmann::json& value = *parsed;
  EXPECT_EQ(value.size(), 3u);
  EXPECT_EQ(value["a"].size(), 8u);
  EXPECT_TRUE(value["a"][0].is_number_unsigned());
  EXPECT_EQ(value["a"][0], 1);
  EXPECT_EQ(value["a"][1], -2);
  EXPECT_EQ(value["a"][2], 0.5);
  EXPECT_EQ(value["a"][3], "s");
  EXPECT_EQ(value["a"][4], true);
  EXPECT_TRUE(value["a"][5].is_null());
  EXPECT_TRUE(value["a"][6].is_array());
  EXPECT_TRUE(value["a"][7].is_object());
  EXPECT_EQ(value["b"]["c"]["d"], 18446744073709551615u);
  EXPECT_EQ(value["é"][0][0][0], 3);
  EXPECT_EQ(value["é"][1]["x"], 4);
  EXPECT_EQ(*ParseStrictJson("7", "f"), 7);
}

TEST(ParseStrictJson, TakesAByteOrderMarkInFront) {
  EXPECT_EQ(*ParseStrictJson("\xEF\xBB\xBF[1]", "f"), nlohmann::json::array({1}));
  EXPECT_FALSE(ParseStrictJson("[1,\xEF\xBB\xBF 2]", "f").ok());
  EXPECT_THAT(std::string(ParseStrictJson("\xFF\xFE[", "f").status().message()), HasSubstr("text in UTF-16"));
}

TEST(ParseStrictJson, NamesWhatIsWrong) {
  const struct {
    std::string text;
    std::string message;
  } cases[] = {
      {"", "config.json: not JSON at byte 1 (line 1, column 1): the text ends too soon"},
      {"{", "not JSON at byte 2 (line 1, column 2): the text ends too soon"},
      {"[1,]", "not JSON at byte 4 (line 1, column 4): unexpected ']'"},
      {"[1,\n 2,\n  3 4]", "not JSON at byte 13 (line 3, column 5): unexpected '4'"},
      {"[\"abc", "the text ends too soon"},
      {"[\"a\nb\"]", "a control character inside a string"},
      {"[\x1b]", "unexpected '\\x1b'"},
      {"[" + std::string(1000, 'x') + "]", "not JSON at byte 2 (line 1, column 2): unexpected 'x'"},
      {"[1] x", "not JSON at byte 5"},
      {"// c\n1", "not JSON at byte 1"},
      {"{\"a\":1e999}", "config.json: number out of range at byte 10 (line 1, column 10): 1e999"},
      {"\"\xff\"", "not UTF-8"},
      {std::string("1\0", 2), "not JSON at byte 2 (line 1, column 2): a zero byte"},
      {R"({"a":1,"a":2})", R"(config.json: the key "a" appears twice in one object)"},
      {R"([{"b":{"c":1,"d":2,"\u0063":1}}])", R"(the key "c" appears twice in one object)"},
      {std::string(101, '[') + std::string(101, ']'), "nested more than 100 deep"},
      {std::string(1000000, '['), "nested more than 100 deep"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.text.substr(0, 100));
    const absl::Status status = ParseStrictJson(c.text, "config.json").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("exception")));
    EXPECT_LT(status.message().size(), 200u);
  }
  EXPECT_TRUE(ParseStrictJson(std::string(100, '[') + std::string(100, ']'), "f").ok());
  EXPECT_TRUE(ParseStrictJson(R"([{"a":1},{"a":1}])", "f").ok());
}

}  // namespace
}  // namespace kvm
