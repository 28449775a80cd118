#include "tools/cli/progress.h"

#include <sstream>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ProgressTest, ATerminalGetsOneLineThatIsClearedAtTheEnd) {
  std::istringstream in;
  std::ostringstream out, err;
  Console console{in, out, err, true};
  {
    Progress progress(console, "reading", "tokens", 3000);
    progress.Update(10);
    EXPECT_EQ(err.str(), "");  // too early to say anything
    absl::SleepFor(absl::Milliseconds(1100));
    progress.Update(1000);
    EXPECT_THAT(err.str(), StartsWith("\r\x1b[Kreading: 1,000 of 3,000 tokens, "));
    EXPECT_THAT(err.str(), HasSubstr(" tokens/s, "));
    EXPECT_THAT(err.str(), EndsWith(" s left"));
  }
  EXPECT_THAT(err.str(), EndsWith(" s left\r\x1b[K"));
  EXPECT_EQ(out.str(), "");
}

TEST(ProgressTest, ShortStepsSayNothing) {
  std::istringstream in;
  std::ostringstream out, err;
  Console console{in, out, err, false};
  {
    Progress progress(console, "reading", "tokens", 10);
    progress.Update(5);
    progress.Update(10);
  }
  EXPECT_EQ(err.str(), "");
}

}  // namespace
}  // namespace kvm
