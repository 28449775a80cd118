// docs/adding_a_mixer.md shows this folder's code: every block of code in it stands verbatim in a source file here.

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace consumer {
namespace {

constexpr char kFolder[] = "decay_average/";

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

// The fenced blocks of a language.
std::vector<std::string> BlocksOf(const std::string& page, const std::string& language) {
  std::vector<std::string> blocks;
  bool inside = false;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(page, '\n'))) {
    if (!inside && line == "```" + language) {
      inside = true;
      blocks.emplace_back();
    } else if (inside && line == "```") {
      inside = false;
    } else if (inside) {
      blocks.back() += line + "\n";
    }
  }
  EXPECT_FALSE(inside) << "a block without an end";
  return blocks;
}

void ExpectVerbatim(const std::vector<std::string>& blocks, const std::vector<std::string>& files) {
  std::vector<std::string> sources;
  for (const std::string& file : files) sources.push_back(ReadAll(kFolder + file));
  for (const std::string& block : blocks) {
    EXPECT_FALSE(block.empty());
    bool found = false;
    for (const std::string& source : sources) found = found || absl::StrContains(source, block);
    EXPECT_TRUE(found) << "no file of " << kFolder << " has this code of the page:\n" << block;
  }
}

TEST(AddingAMixer, ShowsTheCodeThatIsTested) {
  const std::string page = ReadAll("external/kvm/docs/adding_a_mixer.md");
  const std::vector<std::string> cpp = BlocksOf(page, "cpp"), proto = BlocksOf(page, "proto");
  EXPECT_GE(cpp.size(), 6u);
  EXPECT_EQ(proto.size(), 1u);
  ExpectVerbatim(cpp, {"decay_average.h", "decay_average.cc", "decay_average_test.cc"});
  ExpectVerbatim(proto, {"decay_average.proto"});
}

}  // namespace
}  // namespace consumer
