#include "kvm/state/store_folder.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/io/atomic_file.h"

namespace kvm {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string NewFolder() {
  std::string folder = testing::TempDir() + "/store_folderXXXXXX";
  EXPECT_NE(mkdtemp(&folder[0]), nullptr);
  return folder;
}

void Write(const std::string& path, const std::string& bytes) {
  ASSERT_TRUE(WriteFileAtomically(path, bytes).ok()) << path;
}

TEST(StoreFolderTest, NamesThatCouldLeaveTheFolderAreRefused) {
  for (const char* name : {"a", "A-1_b.c", "0", "a..b"}) EXPECT_TRUE(CheckSessionName(name).ok()) << name;
  EXPECT_TRUE(CheckSessionName(std::string(100, 'x')).ok());
  for (const char* name : {"", ".", "..", ".a", "a/b", "/a", "a b", "a\n", "ä", "a\\b", "a:b", "*"}) {
    const absl::Status status = CheckSessionName(name);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("\"", name, "\"")));
  }
  EXPECT_THAT(std::string(CheckSessionName(std::string(101, 'x')).message()), HasSubstr("101 characters"));
  EXPECT_FALSE(CheckSessionName(absl::string_view("a\0b", 3)).ok());
}

TEST(StoreFolderTest, SecondOpenNamesTheHolder) {
  const std::string folder = NewFolder() + "/deep/er";
  std::optional<StoreFolder> first = StoreFolder::Open(folder).value();
  const absl::Status status = StoreFolder::Open(folder).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("process ", getpid())));
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder));
  first.reset();
  EXPECT_TRUE(StoreFolder::Open(folder).ok());
}

TEST(StoreFolderTest, LockOfAKilledProcessIsFree) {
  const std::string folder = NewFolder();
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const absl::StatusOr<StoreFolder> held = StoreFolder::Open(folder);
    const char ok = held.ok() ? 'y' : 'n';
    if (write(ready[1], &ok, 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  char ok = 0;
  ASSERT_EQ(read(ready[0], &ok, 1), 1);
  EXPECT_EQ(ok, 'y');
  EXPECT_THAT(std::string(StoreFolder::Open(folder).status().message()), HasSubstr(absl::StrCat("process ", child)));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(StoreFolder::Open(folder).ok());
  close(ready[0]);
  close(ready[1]);
}

TEST(StoreFolderTest, ListsSnapshotFilesAndNothingElse) {
  const std::string folder = NewFolder();
  const StoreFolder store = StoreFolder::Open(folder).value();
  Write(store.SessionPath("talk"), "12345");
  Write(store.SessionPath("talk.2"), "");
  Write(store.SnapshotPath(512, 0xabc), "1");
  Write(folder + "/sessions/odd name.kvmstate", "");
  Write(folder + "/sessions/talk.kvmstate.damaged", "");
  Write(folder + "/sessions/a.kvmstate.damaged.3.kvmstate.damaged.12", "123");
  Write(folder + "/sessions/talk.kvmstate.damaged.", "");
  Write(folder + "/sessions/talk.kvmstate.2", "");
  Write(folder + "/sessions/odd name.kvmstate.damaged", "");
  Write(store.SnapshotPath(512, 0xabc) + ".damaged", "");
  Write(folder + "/sessions/notes.txt", "");
  ASSERT_TRUE(fs::create_directory(folder + "/sessions/folder.kvmstate"));
  const StoreFolder::Contents contents = store.List().value();
  ASSERT_EQ(contents.files.size(), 3);
  EXPECT_EQ(contents.files[0].path, folder + "/sessions/talk.2.kvmstate");
  EXPECT_EQ(contents.files[0].session, "talk.2");
  EXPECT_EQ(contents.files[1].session, "talk");
  EXPECT_EQ(contents.files[1].bytes, 5);
  EXPECT_EQ(contents.files[2].path, folder + "/snapshots/512-0000000000000abc.kvmstate");
  EXPECT_EQ(contents.files[2].session, "");
  EXPECT_THAT(contents.odd, ElementsAre(folder + "/sessions/odd name.kvmstate"));
  ASSERT_EQ(contents.damaged.size(), 3);
  EXPECT_EQ(contents.damaged[0].session, "a.kvmstate.damaged.3");
  EXPECT_EQ(contents.damaged[0].bytes, 3);
  EXPECT_EQ(contents.damaged[1].path, folder + "/sessions/talk.kvmstate.damaged");
  EXPECT_EQ(contents.damaged[1].session, "talk");
  EXPECT_EQ(contents.damaged[2].path, folder + "/snapshots/512-0000000000000abc.kvmstate.damaged");
  EXPECT_EQ(contents.damaged[2].session, "");
}

TEST(StoreFolderTest, LeftoversOfAKilledProcessAreRemovedAtOpen) {
  const std::string folder = NewFolder();
  { EXPECT_TRUE(StoreFolder::Open(folder).ok()); }
  const pid_t child = fork();
  if (child == 0) {
    absl::StatusOr<AtomicFile> file = AtomicFile::Create(folder + "/sessions/a.kvmstate");
    _exit(file.ok() && file->Append("half").ok() ? 0 : 1);  // without the destructor
  }
  int status = -1;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  ASSERT_FALSE(fs::is_empty(folder + "/sessions"));
  EXPECT_TRUE(StoreFolder::Open(folder).ok());
  EXPECT_TRUE(fs::is_empty(folder + "/sessions"));
}

TEST(StoreFolderTest, FolderThatCannotBeIsNamed) {
  const std::string folder = NewFolder();
  Write(folder + "/file", "");
  for (const std::string& path : {folder + "/file", folder + "/file/below"}) {
    const absl::Status status = StoreFolder::Open(path).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  }
}

TEST(StoreFolderTest, AsideNamesDoNotCollide) {
  const std::string path = NewFolder() + "/a.kvmstate";
  Write(path, "1");
  EXPECT_EQ(MoveAside(path).value(), path + ".damaged");
  Write(path, "2");
  EXPECT_EQ(MoveAside(path).value(), path + ".damaged.2");
  EXPECT_FALSE(fs::exists(path));
  EXPECT_THAT(std::string(MoveAside(path).status().message()), HasSubstr(path));
}

TEST(StoreFolderTest, RemovingWhatIsNotThereIsNoError) {
  const std::string folder = NewFolder();
  EXPECT_TRUE(RemoveFile(folder + "/none").ok());
  EXPECT_THAT(std::string(RemoveFile(folder).message()), HasSubstr(folder));
}

}  // namespace
}  // namespace kvm
