#include "kvm/io/stack_file.h"

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/file/mapped_file.h"

namespace kvm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Path() { return ::testing::TempDir() + "/stack.textproto"; }

std::string Refusal(const std::string& text) {
  EXPECT_TRUE(WriteFileAtomically(Path(), text).ok());
  const absl::StatusOr<StackSpec> spec = ReadStackFile(Path());
  EXPECT_FALSE(spec.ok());
  return std::string(spec.status().message());
}

TEST(ReadStackFile, ReadsAStack) {
  ASSERT_TRUE(WriteFileAtomically(Path(), R"(vocab_size: 48 width: 32
      mixers { name: "r" rwkv7 { num_heads: 2 } } layers: "r")")
                  .ok());
  const absl::StatusOr<StackSpec> spec = ReadStackFile(Path());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->width(), 32);
}

TEST(ReadStackFile, NamesWhatElseTheFileIs) {
  const struct {
    std::string text;
    std::string said;
  } cases[] = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 3\n", "it looks like a Git LFS pointer"},
      {"<!doctype html><p>Not found", "it looks like an HTML page"},
      {std::string("PK\x03\x04\0\0", 6), "it looks like a zip archive"},
      {std::string("GGUF\x03\0\0\0", 8), "it looks like a GGUF file"},
      {"{\"width\": 32}", "it looks like JSON"},
      {std::string(100, '\0'), "it begins with zeros"},
      {"", "it is empty"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(Refusal(c.text), AllOf(StartsWith(absl::StrCat(Path(), ":")), HasSubstr(absl::StrCat("; ", c.said))));
  }
}

TEST(ReadStackFile, RefusesWhatIsTooLargeForOne) {
  EXPECT_THAT(Refusal(std::string(kMaxTextFileBytes + 1, ' ')),
              HasSubstr("has 67108865 bytes; expected a text file of at most 67108864"));
}

}  // namespace
}  // namespace kvm
