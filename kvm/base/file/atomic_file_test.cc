#include "kvm/base/file/atomic_file.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A new, empty folder.
std::string NewFolder() {
  std::string folder = testing::TempDir() + "/atomicXXXXXX";
  EXPECT_NE(mkdtemp(&folder[0]), nullptr);
  return folder;
}

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> names;
  DIR* directory = opendir(folder.c_str());
  while (const dirent* entry = readdir(directory)) {
    if (entry->d_name[0] != '.') names.push_back(entry->d_name);
  }
  closedir(directory);
  std::sort(names.begin(), names.end());
  return names;
}

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(AtomicFile, AppearsWholeOnCommit) {
  const std::string folder = NewFolder();
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(folder + "/a");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->Append("one ").ok());
  ASSERT_TRUE(file->Append("").ok());
  ASSERT_TRUE(file->Append(absl::string_view("two\0", 4)).ok());
  EXPECT_NE(access((folder + "/a").c_str(), F_OK), 0);
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(Contents(folder + "/a"), std::string("one two\0", 8));
  EXPECT_THAT(FilesIn(folder), ElementsAre("a"));
}

TEST(AtomicFile, LeavesNothingWhenNotCommitted) {
  const std::string folder = NewFolder();
  {
    absl::StatusOr<AtomicFile> file = AtomicFile::Create(folder + "/a");
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(file->Append("half").ok());
    EXPECT_EQ(FilesIn(folder).size(), 1u);
  }
  EXPECT_THAT(FilesIn(folder), IsEmpty());
}

TEST(AtomicFile, KeepsTheOldContentsUntilCommit) {
  const std::string folder = NewFolder();
  const std::string path = folder + "/a";
  ASSERT_TRUE(WriteFileAtomically(path, "old contents").ok());
  {
    absl::StatusOr<AtomicFile> file = AtomicFile::Create(path);
    ASSERT_TRUE(file.ok() && file->Append("new").ok());
    EXPECT_EQ(Contents(path), "old contents");
  }
  EXPECT_EQ(Contents(path), "old contents");
  ASSERT_TRUE(WriteFileAtomically(path, "new").ok());
  EXPECT_EQ(Contents(path), "new");
  EXPECT_THAT(FilesIn(folder), ElementsAre("a"));
}

TEST(AtomicFile, LetsTwoWritersOfOneNameCoexist) {
  const std::string folder = NewFolder();
  absl::StatusOr<AtomicFile> first = AtomicFile::Create(folder + "/a");
  absl::StatusOr<AtomicFile> second = AtomicFile::Create(folder + "/a");
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_TRUE(first->Append("first").ok() && second->Append("second").ok());
  ASSERT_TRUE(second->Commit().ok());
  ASSERT_TRUE(first->Commit().ok());
  EXPECT_EQ(Contents(folder + "/a"), "first");
  EXPECT_THAT(FilesIn(folder), ElementsAre("a"));
}

TEST(AtomicFile, MovesItsTemporary) {
  const std::string folder = NewFolder();
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(folder + "/a");
  ASSERT_TRUE(file.ok());
  {
    AtomicFile moved = *std::move(file);
    ASSERT_TRUE(moved.Append("x").ok());
    ASSERT_TRUE(moved.Commit().ok());
  }
  EXPECT_EQ(Contents(folder + "/a"), "x");
}

TEST(AtomicFile, IsClosedAfterCommit) {
  const std::string folder = NewFolder();
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(folder + "/a");
  ASSERT_TRUE(file.ok() && file->Commit().ok());
  EXPECT_EQ(file->Append("more").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(file->Commit().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Contents(folder + "/a"), "");
}

TEST(AtomicFile, HonoursTheUmask) {
  const std::string path = NewFolder() + "/a";
  const mode_t old_mask = umask(027);
  ASSERT_TRUE(WriteFileAtomically(path, "x").ok());
  umask(old_mask);
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
}

// A write that fails half-way: the limit on file sizes stands in for a full disk.
mode_t ModeOf(const std::string& path) {
  struct stat info;
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}

TEST(AtomicFile, TheNewFileHasTheOldOnesPermissions) {
  const mode_t umask_before = umask(022);
  for (const mode_t mode : {0600, 0644, 0640, 0666, 0755, 0200, 0222}) {
    const std::string path = NewFolder() + "/a";
    ASSERT_TRUE(WriteFileAtomically(path, "old").ok());
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    absl::StatusOr<AtomicFile> file = AtomicFile::Create(path);
    ASSERT_TRUE(file.ok() && file->Append("new").ok()) << file.status();
    // Already while it is written.
    for (const std::string& name : FilesIn(path.substr(0, path.rfind('/')))) {
      EXPECT_EQ(ModeOf(path.substr(0, path.rfind('/') + 1) + name), mode) << name;
    }
    ASSERT_TRUE(file->Commit().ok());
    EXPECT_EQ(ModeOf(path), mode);
  }
  umask(umask_before);
}

TEST(AtomicFile, AFileWithoutWritePermissionIsNotReplaced) {
  for (const mode_t mode : {0400, 0444, 0, 0555}) {
    const std::string folder = NewFolder();
    const std::string path = folder + "/a";
    ASSERT_TRUE(WriteFileAtomically(path, "old").ok());
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    ASSERT_EQ(symlink("a", (folder + "/link").c_str()), 0);
    for (const char* const name : {"/a", "/link"}) {
      const absl::Status status = WriteFileAtomically(folder + name, "new");
      EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
      EXPECT_THAT(std::string(status.message()), HasSubstr(folder + name + ": the file that is there has no write"));
    }
    ASSERT_EQ(chmod(path.c_str(), 0600), 0);
    EXPECT_EQ(Contents(path), "old");
    EXPECT_THAT(FilesIn(folder), ElementsAre("a", "link"));
  }
}

TEST(AtomicFile, LeavesNothingWhenAWriteFails) {
  const std::string folder = NewFolder();
  rlimit old_limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  signal(SIGXFSZ, SIG_IGN);
  rlimit limit = old_limit;
  limit.rlim_cur = 4096;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);

  absl::StatusOr<AtomicFile> file = AtomicFile::Create(folder + "/a");
  const absl::Status written = file.ok() ? file->Append(std::string(10000, 'x')) : file.status();
  const absl::Status committed = file.ok() ? file->Commit() : file.status();
  setrlimit(RLIMIT_FSIZE, &old_limit);

  EXPECT_FALSE(written.ok());
  EXPECT_THAT(std::string(written.message()), HasSubstr(folder + "/a"));
  EXPECT_EQ(committed.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(FilesIn(folder), IsEmpty());
}

// A link stays a link, and the file that it leads to gets the contents: there already or not, near or far.
TEST(AtomicFile, WritesWhereLinksLead) {
  const std::string folder = NewFolder();
  const std::string elsewhere = NewFolder();
  ASSERT_TRUE(WriteFileAtomically(folder + "/file", "old").ok());
  ASSERT_EQ(symlink("file", (folder + "/relative").c_str()), 0);
  ASSERT_EQ(symlink("relative", (folder + "/twice").c_str()), 0);
  ASSERT_EQ(symlink((elsewhere + "/new").c_str(), (folder + "/dangling").c_str()), 0);
  const struct {
    std::string link, file;
  } cases[] = {{folder + "/relative", folder + "/file"},
               {folder + "/twice", folder + "/file"},
               {folder + "/dangling", elsewhere + "/new"},
               {folder + "/dangling", elsewhere + "/new"}};
  for (const auto& c : cases) {
    ASSERT_TRUE(WriteFileAtomically(c.link, c.link).ok()) << WriteFileAtomically(c.link, "");
    struct stat info;
    ASSERT_EQ(lstat(c.link.c_str(), &info), 0);
    EXPECT_TRUE(S_ISLNK(info.st_mode)) << c.link;
    ASSERT_EQ(lstat(c.file.c_str(), &info), 0);
    EXPECT_TRUE(S_ISREG(info.st_mode)) << c.file;
    EXPECT_EQ(Contents(c.file), c.link);
  }
  EXPECT_THAT(FilesIn(folder), ElementsAre("dangling", "file", "relative", "twice"));
  EXPECT_THAT(FilesIn(elsewhere), ElementsAre("new"));
}

TEST(AtomicFile, RefusesLinksToWhatIsNoFile) {
  const std::string folder = NewFolder();
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const std::string cases[][2] = {{"loop_a", "loop_b"}, {"loop_b", "loop_a"},
                                  {"itself", "itself"}, {"device", "/dev/null"},
                                  {"folder", "."},      {"absent_folder", "absent/file"},
                                  {"slash", "absent/"}, {"open_pipe", "/proc/self/fd/" + std::to_string(pipe_ends[1])}};
  for (const auto& c : cases) ASSERT_EQ(symlink(c[1].c_str(), (folder + "/" + c[0]).c_str()), 0);
  const std::vector<std::string> before = FilesIn(folder);
  for (const auto& c : cases) {
    const std::string link = folder + "/" + c[0];
    const absl::Status status = WriteFileAtomically(link, "x");
    EXPECT_FALSE(status.ok()) << c[0];
    EXPECT_THAT(std::string(status.message()), HasSubstr(link));
    struct stat info;
    ASSERT_EQ(lstat(link.c_str(), &info), 0);
    EXPECT_TRUE(S_ISLNK(info.st_mode)) << c[0];
  }
  EXPECT_EQ(FilesIn(folder), before);
  struct stat info;
  ASSERT_EQ(stat("/dev/null", &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode));
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST(AtomicFile, NamesWhatItCannotWrite) {
  const std::string folder = NewFolder();
  const std::string plain = folder + "/plain";
  ASSERT_TRUE(WriteFileAtomically(plain, "x").ok());
  ASSERT_EQ(mkfifo((folder + "/pipe").c_str(), 0600), 0);
  const struct {
    std::string path;
    absl::StatusCode code;
  } cases[] = {
      {folder + "/absent/a", absl::StatusCode::kNotFound},
      {plain + "/a", absl::StatusCode::kFailedPrecondition},
      {folder, absl::StatusCode::kFailedPrecondition},
      {folder + "/", absl::StatusCode::kFailedPrecondition},
      {folder + "/absent/", absl::StatusCode::kFailedPrecondition},
      {folder + "/pipe", absl::StatusCode::kFailedPrecondition},
      {"/dev/null", absl::StatusCode::kFailedPrecondition},
      {"", absl::StatusCode::kFailedPrecondition},
  };
  for (const auto& c : cases) {
    const absl::Status status = WriteFileAtomically(c.path, "y");
    EXPECT_EQ(status.code(), c.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.path));
  }
  EXPECT_THAT(FilesIn(folder), ElementsAre("pipe", "plain"));
}

}  // namespace
}  // namespace kvm
