#include "kvm/base/file/mapped_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

using ::testing::HasSubstr;

std::string TemporaryFile(const std::string& name, const std::string& contents) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary) << contents;
  return path;
}

std::string AsString(const MappedFile& file) { return {file.bytes().begin(), file.bytes().end()}; }

TEST(MappedFile, HoldsTheBytesOfTheFile) {
  const std::string contents("a\0b\xff\n", 5);
  const std::string path = TemporaryFile("mapped", contents);
  const absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(AsString(*file), contents);
  EXPECT_EQ(file->path(), path);
}

TEST(MappedFile, OutlivesTheNameOfTheFile) {
  const std::string path = TemporaryFile("unlinked", "still here");
  const absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(unlink(path.c_str()), 0);
  EXPECT_EQ(AsString(*file), "still here");
}

TEST(MappedFile, MovesItsMapping) {
  absl::StatusOr<MappedFile> first = MappedFile::Open(TemporaryFile("first", "one"));
  absl::StatusOr<MappedFile> second = MappedFile::Open(TemporaryFile("second", "two"));
  ASSERT_TRUE(first.ok() && second.ok());
  const uint8_t* data = first->bytes().data();
  *second = *std::move(first);
  EXPECT_EQ(AsString(*second), "one");
  EXPECT_EQ(second->bytes().data(), data);
  const MappedFile third = *std::move(second);
  EXPECT_EQ(AsString(third), "one");
}

TEST(MappedFile, MapsAnEmptyFileToNoBytes) {
  const absl::StatusOr<MappedFile> file = MappedFile::Open(TemporaryFile("empty", ""));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(file->bytes().empty());
}

TEST(MappedFile, NamesWhatItCannotOpen) {
  const std::string folder = testing::TempDir();
  const std::string pipe = folder + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const struct {
    std::string path;
    absl::StatusCode code;
  } cases[] = {
      {folder + "/absent", absl::StatusCode::kNotFound},
      {"", absl::StatusCode::kNotFound},
      {folder, absl::StatusCode::kFailedPrecondition},
      {TemporaryFile("plain", "x") + "/below", absl::StatusCode::kFailedPrecondition},
      {pipe, absl::StatusCode::kFailedPrecondition},  // returns at once instead of waiting for a writer
      {"/dev/zero", absl::StatusCode::kFailedPrecondition},
  };
  for (const auto& c : cases) {
    const absl::Status status = MappedFile::Open(c.path).status();
    EXPECT_EQ(status.code(), c.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.path));
  }
}

TEST(ReadFile, ReadsMoreThanOneBufferful) {
  std::string contents;
  for (int i = 0; contents.size() < 200000; ++i) contents += std::to_string(i);
  const absl::StatusOr<std::string> read = ReadFile(TemporaryFile("long", contents));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(*read == contents);
}

TEST(ReadFile, ReadsFilesWithoutASize) {
  const absl::StatusOr<std::string> read = ReadFile("/proc/self/comm");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_FALSE(read->empty());
}

TEST(ReadFile, NamesWhatItCannotRead) {
  const std::string absent = testing::TempDir() + "/absent";
  EXPECT_EQ(ReadFile(absent).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(ReadFile(absent).status().message()), HasSubstr(absent));
  EXPECT_EQ(ReadFile(testing::TempDir()).status().code(), absl::StatusCode::kFailedPrecondition);
}

// Nothing of a model is a pipe: a model's file that is one must not make its reader wait, nor a device fill the memory.
TEST(ReadFile, RefusesPipesAndDevices) {
  const std::string pipe = testing::TempDir() + "/text_pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, std::string("/dev/zero")}) {
    const absl::Status status = ReadFile(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_EQ(status.message(), "cannot read " + path + ": not a regular file");
  }
}

TEST(ReadFile, RefusesWhatIsLargerThanAsked) {
  const std::string path = TemporaryFile("four", "abcd");
  EXPECT_EQ(*ReadFile(path, 4), "abcd");
  EXPECT_EQ(ReadFile(path, 3).status().message(), path + ": has 4 bytes; expected a text file of at most 3");
  EXPECT_EQ(ReadFile("/proc/self/comm", 1).status().code(), absl::StatusCode::kInvalidArgument);
  // Has a size and no bytes on disk.
  ASSERT_EQ(truncate(path.c_str(), off_t{1} << 40), 0);
  EXPECT_EQ(ReadFile(path).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ReadFile, NamesBrokenLinks) {
  const std::string path = testing::TempDir() + "/broken";
  ASSERT_EQ(symlink("blobs/gone", path.c_str()), 0);
  const std::string message = "cannot read " + path + ": a link to blobs/gone, which is not there";
  EXPECT_EQ(ReadFile(path).status(), absl::FailedPreconditionError(message));
  EXPECT_EQ(MappedFile::Open(path).status(), absl::FailedPreconditionError(message));
}

TEST(ReadFileOrPipe, ReadsFilesOfAnySizeAndDevices) {
  const auto never = [] { return false; };
  EXPECT_EQ(*ReadFileOrPipe(TemporaryFile("text", "abc"), never), "abc");
  EXPECT_EQ(*ReadFileOrPipe("/dev/null", never), "");
  int asked = 0;
  const absl::Status status = ReadFileOrPipe("/dev/zero", [&] { return ++asked == 3; }).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
}

}  // namespace
}  // namespace kvm
