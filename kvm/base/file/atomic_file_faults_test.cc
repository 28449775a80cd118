// Disks that are full or broken, and processes that were killed.

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/file/failing_file_operations.h"
#include "kvm/base/file/mapped_file.h"

namespace kvm {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

std::string NewFolder() {
  std::string folder = testing::TempDir() + "/faultsXXXXXX";
  EXPECT_NE(mkdtemp(&folder[0]), nullptr);
  return folder;
}

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

absl::Status WriteInTwoPieces(const std::string& path, const std::string& contents,
                              std::shared_ptr<FileOperations> operations) {
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(path, std::move(operations));
  if (!file.ok()) return file.status();
  const absl::Status first = file->Append(contents.substr(0, 3));
  if (!first.ok()) return first;
  const absl::Status second = file->Append(contents.substr(3));
  if (!second.ok()) return second;
  return file->Commit();
}

TEST(AtomicFileFaults, WhateverFailsTheOldOrTheNewContentsAreThereWhole) {
  for (const int error : {ENOSPC, EIO, EDQUOT, EROFS}) {
    for (const size_t max_write : {size_t{1}, size_t{1000}}) {
      const std::string folder = NewFolder();
      const std::string path = folder + "/a";
      std::set<std::string> failed;
      int call = 0;
      for (;; ++call) {
        ASSERT_TRUE(WriteFileAtomically(path, "old contents").ok());
        const auto operations = std::make_shared<FailingFileOperations>(call, error, max_write);
        const absl::Status status = WriteInTwoPieces(path, "new contents!", operations);
        EXPECT_THAT(FilesIn(folder), ElementsAre("a"));
        const std::string contents = ReadFile(path).value();
        if (operations->failed().empty()) {
          EXPECT_TRUE(status.ok()) << status;
          EXPECT_EQ(contents, "new contents!");
          break;
        }
        failed.insert(operations->failed());
        EXPECT_EQ(status.code(), absl::ErrnoToStatusCode(error)) << operations->failed();
        EXPECT_THAT(std::string(status.message()), HasSubstr(path));
        EXPECT_THAT(contents, AnyOf("old contents", "new contents!"));
      }
      EXPECT_THAT(failed, ElementsAre("Chmod", "Close", "Open", "Rename", "Sync", "Write"));
      EXPECT_GE(call, max_write == 1 ? 19 : 8);
    }
  }
}

TEST(AtomicFileFaults, OnlyTheFoldersOwnFlushFailsAfterTheRename) {
  const std::string path = NewFolder() + "/a";
  std::vector<std::string> calls;
  for (int call = 0;; ++call) {
    ASSERT_TRUE(WriteFileAtomically(path, "old").ok());
    const auto operations = std::make_shared<FailingFileOperations>(call, EIO);
    static_cast<void>(WriteInTwoPieces(path, "newer", operations));
    if (operations->failed().empty()) break;
    calls.push_back(operations->failed() + (ReadFile(path).value() == "old" ? " old" : " new"));
  }
  EXPECT_THAT(calls, ElementsAre("Open old", "Chmod old", "Write old", "Write old", "Sync old", "Close old",
                                 "Rename old", "Open new", "Sync new"));
}

TEST(AtomicFileFaults, SignalsAreNoFailures) {
  const std::string path = NewFolder() + "/a";
  for (int call = 0;; ++call) {
    const auto operations = std::make_shared<FailingFileOperations>(call, EINTR, 4);
    const absl::Status status = WriteInTwoPieces(path, "some contents", operations);
    if (operations->failed().empty()) break;
    if (operations->failed() != "Write" && operations->failed() != "Sync") continue;
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(ReadFile(path).value(), "some contents");
  }
}

TEST(AtomicFileFaults, FoldersThatCannotBeFlushedAreNoFailures) {
  const std::string path = NewFolder() + "/a";
  const auto operations = std::make_shared<FailingFileOperations>(/*fail_at=*/7, EINVAL);
  EXPECT_TRUE(WriteInTwoPieces(path, "contents", operations).ok());
  EXPECT_EQ(operations->failed(), "Sync");
}

TEST(AtomicFileFaults, WritesThatTakeNothingEnd) {
  const std::string folder = NewFolder();
  const auto operations = std::make_shared<FailingFileOperations>(/*fail_at=*/1000, 0, /*max_write=*/0);
  EXPECT_FALSE(WriteInTwoPieces(folder + "/a", "contents", operations).ok());
  EXPECT_TRUE(FilesIn(folder).empty());
}

TEST(AtomicFileFaults, NothingMoreIsWrittenAfterAFailure) {
  const std::string folder = NewFolder();
  absl::StatusOr<AtomicFile> file =
      AtomicFile::Create(folder + "/a", std::make_shared<FailingFileOperations>(/*fail_at=*/1, ENOSPC));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->Append("x").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(file->Append("y").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(file->Commit().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(FilesIn(folder).empty());
}

// The number of a process that is gone.
int DeadProcess() {
  const int child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return child;
}

TEST(RemoveLeftovers, RemovesWhatAKilledProcessLeft) {
  const std::string folder = NewFolder();
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const int child = fork();
  if (child == 0) {
    absl::StatusOr<AtomicFile> first = AtomicFile::Create(folder + "/a");
    absl::StatusOr<AtomicFile> second = AtomicFile::Create(folder + "/a");
    const bool ok = first.ok() && second.ok() && first->Append("half").ok() && write(ready[1], "x", 1) == 1;
    if (ok) pause();
    _exit(1);
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ(FilesIn(folder).size(), 2u);
  EXPECT_EQ(RemoveLeftovers(folder).value(), 0);  // still being written
  EXPECT_EQ(FilesIn(folder).size(), 2u);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(RemoveLeftovers(folder).value(), 2);
  EXPECT_TRUE(FilesIn(folder).empty());
  EXPECT_EQ(RemoveLeftovers(folder).value(), 0);
  close(ready[0]);
  close(ready[1]);
}

TEST(RemoveLeftovers, LeavesAllOtherNamesAlone) {
  const std::string folder = NewFolder();
  const std::string dead = absl::StrCat(DeadProcess());
  const std::vector<std::string> others = {
      "a",
      "a.tmp." + dead,
      "a.tmp." + dead + ".x",
      "a.tmp." + dead + ".1000",
      "a.tmp." + dead + ".01",
      "a.tmp." + dead + ".0.0",
      "a.tmp." + dead + ".0.bak",
      "a.tmp.0" + dead + ".0",
      "a.tmp.-" + dead + ".0",
      "a.tmp.0.0",
      "a.tmp.99999999999999999999.0",
      ".tmp." + dead + ".0",
      "tmp." + dead + ".0",
      absl::StrCat("a.tmp.", getpid(), ".0"),
  };
  for (const std::string& name : others) std::ofstream(folder + "/" + name) << "x";
  // Folders and links of such a name are none of ours.
  ASSERT_EQ(mkdir((folder + "/d.tmp." + dead + ".0").c_str(), 0700), 0);
  ASSERT_EQ(symlink("a", (folder + "/l.tmp." + dead + ".0").c_str()), 0);
  std::ofstream(folder + "/a.tmp." + dead + ".0") << "x";
  std::ofstream(folder + "/b.tmp.7.0.tmp." + dead + ".999") << "x";
  EXPECT_EQ(RemoveLeftovers(folder).value(), 2);
  EXPECT_THAT(FilesIn(folder), IsSupersetOf(others));
  EXPECT_EQ(FilesIn(folder).size(), others.size() + 2);
}

// As a process in another container would: its number says nothing here, its lock does.
TEST(RemoveLeftovers, LeavesLockedFilesOfUnknownProcesses) {
  const std::string folder = NewFolder();
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(folder + "/a");
  ASSERT_TRUE(file.ok());
  const std::string name = absl::StrCat(folder, "/a.tmp.", DeadProcess(), ".0");
  ASSERT_EQ(rename((folder + "/" + FilesIn(folder)[0]).c_str(), name.c_str()), 0);
  EXPECT_EQ(RemoveLeftovers(folder).value(), 0);
  file = absl::UnknownError("closed");
  EXPECT_EQ(RemoveLeftovers(folder).value(), 1);
}

TEST(RemoveLeftovers, NamesAFolderThatIsNone) {
  const std::string folder = NewFolder();
  const absl::Status status = RemoveLeftovers(folder + "/absent").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder + "/absent"));
}

}  // namespace
}  // namespace kvm
