#include "kvm/io/json/json_fields.h"

#include <string>

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

std::string Refusal(absl::string_view text) {
  const absl::StatusOr<nlohmann::json> object = ParseJsonObject(text, "a.json");
  EXPECT_EQ(object.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(object.status().message());
}

nlohmann::json Parse(absl::string_view text) {
  absl::StatusOr<nlohmann::json> object = ParseJsonObject(text, "a.json");
  EXPECT_TRUE(object.ok()) << object.status();
  return *object;
}

TEST(ParseJsonObject, RefusesWhatIsNotOneObject) {
  EXPECT_THAT(Refusal("{\"a\": 1"), HasSubstr("a.json: "));
  EXPECT_THAT(Refusal("{} {}"), HasSubstr("a.json: "));
  EXPECT_THAT(Refusal("{\"a\": 1, \"a\": 2}"), HasSubstr("a.json: "));
  EXPECT_THAT(Refusal(std::string(1000000, '[')), HasSubstr("a.json: "));
  EXPECT_THAT(Refusal("[1]"), HasSubstr("a.json: got [1], expected a JSON object"));
}

TEST(JsonFields, ReadsValuesAndDefaults) {
  const nlohmann::json object =
      Parse(R"({"i": -3, "n": null, "d": 0.5, "di": 2, "f1": 1, "f0": 0, "t": true, "s": "x", "max": 2147483647})");
  JsonFields fields(object);
  EXPECT_EQ(fields.Whole("i", 7), -3);
  EXPECT_EQ(fields.Whole("max", 7), 2147483647);
  EXPECT_EQ(fields.Whole("n", 7), 7);
  EXPECT_EQ(fields.Whole("absent", 7), 7);
  EXPECT_EQ(fields.OptionalWhole("n"), std::nullopt);
  EXPECT_EQ(fields.Number("d", 1), 0.5);
  EXPECT_EQ(fields.Number("di", 1), 2);
  EXPECT_TRUE(fields.Flag("f1", false));
  EXPECT_FALSE(fields.Flag("f0", true));
  EXPECT_TRUE(fields.Flag("t", false));
  EXPECT_TRUE(fields.Flag("n", true));
  EXPECT_EQ(fields.Text("s", "y"), "x");
  EXPECT_EQ(fields.Text("n", "y"), "y");
  EXPECT_TRUE(fields.Check("x").ok());
}

TEST(JsonFields, ListsEveryFieldOfAWrongType) {
  const nlohmann::json object = Parse(R"({"a": "1", "b": 1.5, "e": [], "f": 2, "g": 3})");
  JsonFields fields(object);
  EXPECT_EQ(fields.Whole("a", 7), 7);
  fields.Whole("b", 7);
  fields.Number("e", 7);
  fields.Flag("f", true);
  fields.Text("g", "");
  fields.AddProblem("a", "something else");  // the first problem of a field is the one that counts
  EXPECT_EQ(std::string(fields.Check("x.json").message()),
            "x.json: a: got \"1\", expected a whole number; "
            "b: got 1.5, expected a whole number; "
            "e: got [], expected a number; "
            "f: got 2, expected true, false, 1 or 0; "
            "g: got 3, expected a string");
}

// Their ranges are the readers', whose messages show what the file has.
TEST(JsonFields, NumbersTooLargeReadAsTheNearest) {
  const nlohmann::json object =
      Parse(R"({"a": 2147483648, "b": -2147483649, "c": 18446744073709551615, "d": -9223372036854775808, "e": 5})");
  JsonFields fields(object);
  EXPECT_EQ(fields.Whole("a", 7), 2147483647);
  EXPECT_EQ(fields.Whole("b", 7), -2147483648);
  EXPECT_EQ(fields.Whole("c", 7), 2147483647);
  EXPECT_EQ(fields.Whole("d", 7), -2147483648);
  EXPECT_EQ(fields.Whole("e", 7), 5);
  EXPECT_TRUE(fields.Check("x").ok());
  fields.AddProblem("c", "2147483647", "1 to 9");
  fields.AddProblem("e", "the 5", "1 to 4");
  EXPECT_EQ(std::string(fields.Check("x").message()),
            "x: c: got 18446744073709551615, expected 1 to 9; e: got the 5, expected 1 to 4");
}

}  // namespace
}  // namespace kvm
