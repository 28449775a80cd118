// What kvm's README tells a workspace to write is what this one consists of.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "text_file.h"

namespace {

using ::testing::HasSubstr;

// `text` as a fenced block of Markdown has it.
std::string Block(const std::string& language, const std::string& text) {
  return "```" + language + "\n" + text + "```\n";
}

TEST(Readme, ShowsTheBazelrcOfThisWorkspace) {
  const std::string readme = ReadText("external/kvm/README.md");
  EXPECT_THAT(readme, HasSubstr("# .bazelrc\n" + ReadText(".bazelrc")));
}

TEST(Readme, ShowsTheSourceThatThisWorkspaceCompiles) {
  const std::string readme = ReadText("external/kvm/README.md");
  EXPECT_THAT(readme, HasSubstr(Block("cpp", ReadText("last_logits.cc"))));
}

TEST(Readme, ShowsWhatThisWorkspaceLoads) {
  const std::string readme = ReadText("external/kvm/README.md");
  const std::string workspace = ReadText("WORKSPACE");
  const std::string load = "load(\"@kvm//third_party:dependencies.bzl\", \"kvm_dependencies\")\n\nkvm_dependencies()\n";
  EXPECT_THAT(workspace, HasSubstr(load));
  EXPECT_THAT(readme, HasSubstr("# WORKSPACE\n" + load));
}

}  // namespace
