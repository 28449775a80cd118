#include "kvm/state/store/store_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/file/mapped_file.h"

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
  ASSERT_EQ(contents.odd.size(), 2);
  EXPECT_EQ(contents.odd[0].path, folder + "/sessions/folder.kvmstate");
  EXPECT_EQ(contents.odd[1].path, folder + "/sessions/odd name.kvmstate");
  EXPECT_EQ(contents.odd[1].session, "");
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
  const pid_t child = fork();
  if (child == 0) {
    const absl::StatusOr<StoreFolder> store = StoreFolder::Open(folder);
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

TEST(StoreFolderTest, WhateverIsCalledLockAndIsNoLockStaysAsItIs) {
  const std::string precious(40, '7');
  for (const std::string& contents : {std::string("my notes\n"), std::string("12 34"), std::string("-1"), precious}) {
    const std::string folder = NewFolder();
    Write(folder + "/lock", contents);
    const absl::Status status = StoreFolder::Open(folder).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << contents;
    EXPECT_THAT(std::string(status.message()), HasSubstr(folder + "/lock is not the lock file of a state store"));
    EXPECT_EQ(ReadFile(folder + "/lock").value(), contents);
    EXPECT_FALSE(fs::exists(folder + "/sessions"));
  }
  for (const std::string& contents : {std::string("other"), std::string("123\n")}) {
    const std::string folder = NewFolder();
    Write(folder + "/precious", contents);
    fs::create_directory(folder + "/store");
    fs::create_symlink("../precious", folder + "/store/lock");
    EXPECT_THAT(std::string(StoreFolder::Open(folder + "/store").status().message()),
                HasSubstr("/lock is a symbolic link; expected"));
    EXPECT_EQ(ReadFile(folder + "/precious").value(), contents);
  }
  const std::string folder = NewFolder();
  ASSERT_EQ(mkfifo((folder + "/lock").c_str(), 0600), 0);  // nobody waits for its other end
  EXPECT_THAT(std::string(StoreFolder::Open(folder).status().message()), HasSubstr("/lock is a pipe; expected"));
  const std::string dangling = NewFolder();
  fs::create_symlink("nowhere", dangling + "/lock");
  EXPECT_FALSE(StoreFolder::Open(dangling).ok());
  EXPECT_FALSE(fs::exists(dangling + "/nowhere"));
  const std::string nested = NewFolder();
  fs::create_directory(nested + "/lock");
  EXPECT_THAT(std::string(StoreFolder::Open(nested).status().message()), HasSubstr("/lock is a folder; expected"));
}

TEST(StoreFolderTest, LockFilesOfEarlierProcessesAreTaken) {
  for (const char* const contents : {"", "123\n", "4194304"}) {
    const std::string folder = NewFolder();
    Write(folder + "/lock", contents);
    EXPECT_TRUE(StoreFolder::Open(folder).ok()) << contents;
  }
}

TEST(StoreFolderTest, WhatIsNoFileHasItsNameAllTheSame) {
  const std::string folder = NewFolder();
  const StoreFolder store = StoreFolder::Open(folder).value();
  ASSERT_EQ(mkfifo(store.SessionPath("pipe").c_str(), 0600), 0);
  fs::create_symlink("nowhere", store.SessionPath("link"));
  fs::create_directory(store.SessionPath("folder"));
  ASSERT_EQ(mkfifo(store.SnapshotPath(8, 1).c_str(), 0600), 0);
  Write(folder + "/elsewhere", "x");
  fs::create_symlink("../elsewhere", store.SessionPath("moved"));
  const StoreFolder::Contents contents = store.List().value();
  ASSERT_EQ(contents.files.size(), 1);
  EXPECT_EQ(contents.files[0].session, "moved");
  ASSERT_EQ(contents.odd.size(), 4);
  EXPECT_EQ(contents.odd[0].session, "folder");
  EXPECT_TRUE(contents.odd[0].is_folder);
  EXPECT_EQ(contents.odd[1].session, "link");
  EXPECT_EQ(contents.odd[1].why,
            store.SessionPath("link") + ": a symbolic link that leads to no file; expected a file");
  EXPECT_EQ(contents.odd[2].session, "pipe");
  EXPECT_EQ(contents.odd[2].why, store.SessionPath("pipe") + ": a pipe; expected a file");
  EXPECT_FALSE(contents.odd[2].in_snapshots);
  EXPECT_EQ(contents.odd[3].session, "");
  EXPECT_TRUE(contents.odd[3].in_snapshots);
}

TEST(StoreFolderTest, WhatWasMadeAndNotUsedGoes) {
  const std::string parent = NewFolder();
  for (const char* const below : {"/store", "/a/b/store", "/c//d/"}) {
    { EXPECT_TRUE(StoreFolder::Open(parent + below).ok()); }
    EXPECT_TRUE(fs::is_empty(parent)) << below;
  }
  // A folder that was there keeps what it had.
  Write(parent + "/notes.txt", "mine");
  { EXPECT_TRUE(StoreFolder::Open(parent).ok()); }
  EXPECT_EQ(std::distance(fs::directory_iterator(parent), fs::directory_iterator()), 1);
  {
    const StoreFolder store = StoreFolder::Open(parent + "/used").value();
    Write(store.SessionPath("a"), "1");
  }
  EXPECT_TRUE(fs::exists(parent + "/used/sessions/a.kvmstate"));
  EXPECT_TRUE(fs::exists(parent + "/used/lock"));
  // It is a store from now on, also when it is empty.
  { EXPECT_TRUE(RemoveFile(StoreFolder::Open(parent + "/used")->SessionPath("a")).ok()); }
  EXPECT_TRUE(fs::exists(parent + "/used/sessions"));
}

TEST(StoreFolderTest, UnusedFoldersThatGoLeaveOneHolderAtATime) {
  const std::string folder = NewFolder() + "/store";
  constexpr int kProcesses = 4, kRounds = 300;
  int counts[2];
  ASSERT_EQ(pipe(counts), 0);
  for (int i = 0; i < kProcesses; ++i) {
    if (fork() != 0) continue;
    // Whoever has the lock is alone: makes a file that must not be there.
    char failures = 0;
    for (int round = 0; round < kRounds; ++round) {
      const absl::StatusOr<StoreFolder> store = StoreFolder::Open(folder);
      if (!store.ok() && !absl::IsFailedPrecondition(store.status())) ++failures;
      if (!store.ok()) continue;
      const std::string alone = folder + "/sessions/alone";
      const int fd = open(alone.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
      if (fd < 0) ++failures;
      close(fd);
      if (unlink(alone.c_str()) != 0) ++failures;
    }
    _exit(write(counts[1], &failures, 1) == 1 ? 0 : 1);
  }
  for (int i = 0; i < kProcesses; ++i) {
    char failures = 1;
    EXPECT_EQ(read(counts[0], &failures, 1), 1);
    EXPECT_EQ(failures, 0);
    wait(nullptr);
  }
  // Who makes a folder and who leaves it last need not be the same, so that it may stay; but nothing is in it.
  EXPECT_FALSE(fs::exists(folder + "/sessions/alone"));
  close(counts[0]);
  close(counts[1]);
}

TEST(StoreFolderTest, PinsAreReadBackAndForeignFilesOfTheirNameStay) {
  const std::string folder = NewFolder();
  const StoreFolder store = StoreFolder::Open(folder).value();
  EXPECT_TRUE(store.ReadPins()->empty());
  ASSERT_TRUE(store.WritePins({"b", "a.1"}).ok());
  EXPECT_EQ(ReadFile(store.PinsPath()).value(), "a.1\nb\n");
  EXPECT_THAT(*store.ReadPins(), ElementsAre("a.1", "b"));
  ASSERT_TRUE(store.WritePins({}).ok());
  EXPECT_FALSE(fs::exists(store.PinsPath()));
  Write(store.PinsPath(), "pins of my bowling club\n");
  EXPECT_EQ(store.ReadPins().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(store.WritePins({"a"}).ok());
  EXPECT_EQ(ReadFile(store.PinsPath()).value(), "pins of my bowling club\n");
  fs::remove(store.PinsPath());
  fs::create_symlink("precious", store.PinsPath());
  EXPECT_FALSE(store.WritePins({"a"}).ok());
  EXPECT_FALSE(fs::exists(folder + "/precious"));
}

TEST(StoreFolderTest, SnapshotNamesAreTold) {
  const StoreFolder store = StoreFolder::Open(NewFolder()).value();
  EXPECT_TRUE(IsSnapshotName(store.SnapshotPath(512, 0xabcdef)));
  for (const char* const name : {"a/mine.kvmstate", "a/512-abc.kvmstate", "a/-0123456789abcdef.kvmstate", "a/.kvmstate",
                                 "a/512-0123456789abcdef.txt", "a/512-0123456789abcdeg.kvmstate"}) {
    EXPECT_FALSE(IsSnapshotName(name)) << name;
  }
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
