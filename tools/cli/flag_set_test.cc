#include "tools/cli/flag_set.h"

#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/cli/command_status.h"

namespace kvm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Values {
  std::string text = "default";
  std::vector<std::string> stops;
  std::string device = "auto";
  int64_t threads = 2;
  double top_p = 1;
  bool json = false;
  std::vector<int64_t> pieces;
  std::vector<std::string> positionals;
};

class FlagSetTest : public ::testing::Test {
 protected:
  FlagSetTest() : flags_("try", "[FILE]", "Tries.") {
    flags_.String("text", &values_.text, "TEXT", "a text");
    flags_.Strings("stop", &values_.stops, "TEXT", "a stop");
    flags_.Choice("device", &values_.device, {"cpu", "auto"}, "a device");
    flags_.Int64("threads", &values_.threads, 1, 64, "threads");
    flags_.Double("top-p", &values_.top_p, 0, 1, "a share");
    flags_.Bool("json", &values_.json, "as JSON");
    flags_.Int64s("pieces", &values_.pieces, 1, 100, "pieces");
    flags_.Positionals(&values_.positionals);
  }

  std::string ErrorOf(const std::vector<std::string>& args) {
    const absl::Status status = flags_.Parse(args);
    EXPECT_TRUE(IsUsageError(status)) << status;
    return std::string(status.message());
  }

  Values values_;
  FlagSet flags_;
};

TEST_F(FlagSetTest, TakesValuesInBothForms) {
  ASSERT_TRUE(flags_
                  .Parse({"--text=a=b", "--threads", "8", "one", "--stop=x", "--stop", "y", "--device=cpu", "--json",
                          "--top-p=0.5", "--pieces=20, 1", "-", "-1", "--", "--two"})
                  .ok());
  EXPECT_EQ(values_.text, "a=b");
  EXPECT_EQ(values_.threads, 8);
  EXPECT_EQ(values_.device, "cpu");
  EXPECT_EQ(values_.top_p, 0.5);
  EXPECT_TRUE(values_.json);
  EXPECT_THAT(values_.stops, ElementsAre("x", "y"));
  EXPECT_THAT(values_.pieces, ElementsAre(20, 1));
  EXPECT_THAT(values_.positionals, ElementsAre("one", "-", "-1", "--two"));
  EXPECT_TRUE(flags_.IsSet("text"));
}

TEST_F(FlagSetTest, KeepsDefaults) {
  ASSERT_TRUE(flags_.Parse({}).ok());
  EXPECT_EQ(values_.text, "default");
  EXPECT_EQ(values_.threads, 2);
  EXPECT_FALSE(flags_.IsSet("text"));
}

TEST_F(FlagSetTest, NegatesBools) {
  values_.json = true;
  ASSERT_TRUE(flags_.Parse({"--nojson"}).ok());
  EXPECT_FALSE(values_.json);
  EXPECT_THAT(ErrorOf({"--notext"}), HasSubstr("unknown flag --notext"));
}

TEST_F(FlagSetTest, OnlyTextsMayBeEmpty) {
  std::string prompt = "default";
  flags_.Text("prompt", &prompt, "a prompt");
  for (const char* name : {"--text", "--stop", "--device", "--threads", "--top-p", "--pieces", "--json"}) {
    EXPECT_THAT(ErrorOf({std::string(name) + "="}), HasSubstr(std::string(name) + " needs a value: " + name + "="));
  }
  EXPECT_THAT(ErrorOf({"--stop", ""}), HasSubstr("--stop needs a value: --stop=TEXT"));
  EXPECT_EQ(values_.text, "default");
  ASSERT_TRUE(flags_.Parse({"--prompt="}).ok());
  EXPECT_EQ(prompt, "");
  EXPECT_TRUE(flags_.IsSet("prompt"));
}

TEST_F(FlagSetTest, IntegersHaveTheBoundsThatAreNamed) {
  int64_t seed = 0;
  std::vector<int64_t> steps;
  flags_.Int64("seed", &seed, 0, std::numeric_limits<int64_t>::max(), "");
  flags_.Int64s("steps", &steps, 1, std::numeric_limits<int64_t>::max(), "");
  EXPECT_THAT(ErrorOf({"--seed=18446744073709551615"}),
              HasSubstr("--seed=18446744073709551615: expected an integer from 0 to 9223372036854775807"));
  EXPECT_THAT(ErrorOf({"--steps=1,9223372036854775808"}), HasSubstr("integers from 1 to 9223372036854775807"));
  ASSERT_TRUE(flags_.Parse({"--seed=9223372036854775807", "--steps=1,9223372036854775807"}).ok());
  EXPECT_EQ(seed, std::numeric_limits<int64_t>::max());
}

TEST_F(FlagSetTest, RangesMayLackAnEnd) {
  double share = 0, rest = 0, factor = 1, size = 1;
  flags_.Double("share", &share, 0, 1, "", FlagSet::Ends::kMax);
  flags_.Double("rest", &rest, 0, 1, "", FlagSet::Ends::kMin);
  flags_.Double("factor", &factor, 0, std::numeric_limits<double>::max(), "", FlagSet::Ends::kMax);
  flags_.Double("size", &size, 0, std::numeric_limits<double>::max(), "");
  ASSERT_TRUE(flags_.Parse({"--share=1", "--rest=0", "--factor=1e-9", "--size=0"}).ok());
  const struct {
    std::string flag, expected;
    std::vector<std::string> values;
  } cases[] = {{"--share", "a number above 0 and at most 1", {"0", "1.5", "nan", "-1", "inf"}},
               {"--rest", "a number of at least 0 and below 1", {"1", "-0.1", "nan"}},
               {"--factor", "a finite number above 0", {"0", "inf", "nan", "1e999"}},
               {"--size", "a finite number of at least 0", {"-1", "inf", "nan"}}};
  for (const auto& c : cases) {
    for (const std::string& value : c.values) {
      EXPECT_THAT(ErrorOf({c.flag + "=" + value}), HasSubstr(c.flag + "=" + value + ": expected " + c.expected + " ("));
    }
  }
}

TEST_F(FlagSetTest, UnknownFlagNamesTheNearest) {
  EXPECT_EQ(ErrorOf({"--thread=2"}), "unknown flag --thread; did you mean --threads? (see kvm help try)");
  EXPECT_EQ(ErrorOf({"--quux"}), "unknown flag --quux (see kvm help try)");
  EXPECT_THAT(ErrorOf({"-t"}), HasSubstr("two dashes"));
}

TEST_F(FlagSetTest, BadValuesNameFlagAndRange) {
  EXPECT_THAT(ErrorOf({"--threads=0"}), HasSubstr("--threads=0: expected an integer from 1 to 64"));
  EXPECT_THAT(ErrorOf({"--threads=two"}), HasSubstr("--threads=two: expected an integer from 1 to 64"));
  EXPECT_THAT(ErrorOf({"--threads=99999999999999999999"}), HasSubstr("from 1 to 64"));
  EXPECT_THAT(ErrorOf({"--top-p=nan"}), HasSubstr("--top-p=nan: expected a number from 0 to 1"));
  EXPECT_THAT(ErrorOf({"--pieces=1,,2"}), HasSubstr("separated by commas"));
  EXPECT_THAT(ErrorOf({"--device=gpu"}), HasSubstr("one of cpu, auto"));
  EXPECT_THAT(ErrorOf({"--json=perhaps"}), HasSubstr("true or false"));
  EXPECT_THAT(ErrorOf({"--text"}), HasSubstr("--text needs a value: --text=TEXT"));
  EXPECT_THAT(ErrorOf({"--text", "--json"}), HasSubstr("--text needs a value"));
  EXPECT_EQ(values_.threads, 2);
}

TEST_F(FlagSetTest, EnvironmentYieldsToTheCommandLine) {
  flags_.ReadFromEnvironment("threads", "FLAG_SET_TEST_THREADS");
  ASSERT_EQ(setenv("FLAG_SET_TEST_THREADS", "5", 1), 0);
  ASSERT_TRUE(flags_.Parse({}).ok());
  EXPECT_EQ(values_.threads, 5);
  EXPECT_EQ(flags_.Source("threads"), "FLAG_SET_TEST_THREADS");
  EXPECT_EQ(flags_.Source("text"), "--text");
  EXPECT_TRUE(flags_.IsFromEnvironment("threads"));
  EXPECT_FALSE(flags_.IsFromEnvironment("text"));
  ASSERT_TRUE(flags_.Parse({"--threads=6"}).ok());
  EXPECT_EQ(values_.threads, 6);
  ASSERT_EQ(unsetenv("FLAG_SET_TEST_THREADS"), 0);
}

TEST_F(FlagSetTest, BadEnvironmentIsNamed) {
  flags_.ReadFromEnvironment("threads", "FLAG_SET_TEST_THREADS");
  ASSERT_EQ(setenv("FLAG_SET_TEST_THREADS", "many", 1), 0);
  EXPECT_THAT(ErrorOf({}), HasSubstr("FLAG_SET_TEST_THREADS=many: expected an integer"));
  ASSERT_EQ(unsetenv("FLAG_SET_TEST_THREADS"), 0);
}

TEST_F(FlagSetTest, ListsAreEmptyOnlyWhereTheyMayBe) {
  EXPECT_THAT(ErrorOf({"--pieces="}), HasSubstr("--pieces needs a value"));
  values_.pieces = {1, 2};
  flags_.AllowEmpty("pieces");
  ASSERT_TRUE(flags_.Parse({"--pieces="}).ok());
  EXPECT_TRUE(flags_.IsSet("pieces"));
  EXPECT_TRUE(values_.pieces.empty());
}

TEST_F(FlagSetTest, HelpListsFlagsWithDefaults) {
  const absl::Status status = flags_.Parse({"--threads=4", "--help"});
  ASSERT_TRUE(IsHelpRequest(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("usage: kvm try [FILE]\n\nTries.\n\nflags:\n"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("  --threads=N                 threads [2]\n"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("  --[no]json                  as JSON\n"));
}

TEST(FlagSetWithoutPositionalsTest, RefusesThem) {
  FlagSet flags("try", "", "Tries.");
  const absl::Status status = flags.Parse({"extra"});
  EXPECT_TRUE(IsUsageError(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("unexpected argument 'extra'"));
}

}  // namespace
}  // namespace kvm
