#include "kvm/base/file/file_kind.h"

#include <string>

#include "gtest/gtest.h"

namespace kvm {
namespace {

TEST(DetectFileKind, KnowsWhatPeoplePass) {
  const struct {
    std::string start;
    FileKind kind;
  } cases[] = {
      {"", FileKind::kEmpty},
      {std::string(3, '\0'), FileKind::kZeros},
      {std::string(63, '\0') + "a", FileKind::kUnknown},
      {"hello, world", FileKind::kUnknown},
      {" \n\t", FileKind::kUnknown},
      {std::string("\x02\0\0\0\0\0\0\0{}", 10), FileKind::kSafetensors},
      {std::string("\x90\0\0\0\0\0\0\0{\"w\":", 13), FileKind::kSafetensors},
      {std::string("\x90\0\0\0\0\0\0\0", 8), FileKind::kUnknown},
      {std::string("\x90\0\0\0\0\0\0\x80{\"w\":", 13), FileKind::kUnknown},
      {std::string("PK\x03\x04\0\0\x08\x08", 8), FileKind::kZip},
      {std::string("PK\x05\x06\0\0", 6), FileKind::kZip},
      {"PK", FileKind::kUnknown},
      {"\x80\x02\x8a\nl\xfc\x9c", FileKind::kPickle},
      {"\x80\x04\x95", FileKind::kPickle},
      {"\x80\x09", FileKind::kUnknown},
      {"\x80", FileKind::kUnknown},
      {std::string("KVMPACK\0\x01\0", 10), FileKind::kPacked},
      {std::string("KVMSNAP\n\x01\0", 10), FileKind::kSnapshot},
      {std::string("GGUF\x03\0\0\0", 8), FileKind::kGguf},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n", FileKind::kGitLfsPointer},
      {"<!DOCTYPE html>\n<html></html>", FileKind::kHtml},
      {"\n\n<HTML><body>Not found</body></HTML>", FileKind::kHtml},
      {"{\n  \"metadata\": {}}", FileKind::kJson},
      {"\xEF\xBB\xBF{}", FileKind::kJson},
      {"\xEF\xBB\xBF<html>", FileKind::kHtml},
      {std::string("\xFF\xFE{\0", 4), FileKind::kUtf16},
      {std::string("\xFE\xFF\0{", 4), FileKind::kUtf16},
  };
  for (const auto& c : cases) EXPECT_EQ(DetectFileKind(c.start), c.kind) << c.start;
}

TEST(LooksLike, SaysSoOnlyWhenItKnows) {
  EXPECT_EQ(LooksLike("hello"), "");
  EXPECT_EQ(LooksLike(""), "; it is empty");
  EXPECT_EQ(LooksLike("GGUF\x03"), "; it looks like a GGUF file");
}

}  // namespace
}  // namespace kvm
