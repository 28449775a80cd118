// What a store keeps on disk, for how long, and what it makes of names that something else has.

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/state/snapshot/snapshot_testing.h"
#include "kvm/state/store/state_store.h"
#include "kvm/state/store/state_store_testing.h"

namespace kvm {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Times of files are told apart from here on.
constexpr absl::Duration kTick = absl::Milliseconds(50);

constexpr int64_t kPlenty = int64_t{1} << 30;

std::unique_ptr<StateStore> Open(const std::string& folder,
                                 int64_t snapshot_budget = std::numeric_limits<int64_t>::max(),
                                 StoreModel model = CountingModel()) {
  StateStoreOptions options = CountingOptions(kPlenty, folder);
  options.snapshot_budget = snapshot_budget;
  absl::StatusOr<std::unique_ptr<StateStore>> store = StateStore::Open(options, std::move(model));
  EXPECT_TRUE(store.ok()) << store.status();
  return *std::move(store);
}

StoreModel OtherModel() {
  StoreModel model = CountingModel();
  model.identity.fingerprint += 1;
  return model;
}

// Feeds a prompt of `count` tokens from `first` on and keeps its end.
void KeepPrompt(StateStore& store, int64_t count, int32_t first) {
  const std::vector<int32_t> prompt = Counting(count, first);
  SessionLease lease = store.Create("", prompt, 0).value();
  Feed(lease.session(), absl::MakeConstSpan(prompt).subspan(lease.session().tokens.size()));
  ASSERT_TRUE(lease.Keep().ok());
}

// How many tokens of a prompt are stored.
int64_t Reused(StateStore& store, int64_t count, int32_t first) {
  return store.Create("", Counting(count, first), 0).value().session().state.position();
}

int64_t SnapshotBytes(const std::string& folder) {
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder + "/snapshots")) {
    bytes += static_cast<int64_t>(entry.file_size());
  }
  return bytes;
}

TEST(StateStoreDiskTest, TheEndOfAPromptIsKeptForGood) {
  const std::string folder = NewTestFolder();
  {
    const auto store = Open(folder);
    KeepPrompt(*store, 3, 50);  // no boundary, and shorter than a chunk
    KeepPrompt(*store, 21, 100);
    SessionLease lease = store->Create("", Counting(5, 200), 0).value();
    Feed(lease.session(), Counting(5, 200));
    ASSERT_TRUE(lease.Offer().ok());  // among the newest first, then for good
    ASSERT_TRUE(lease.Keep().ok());
    for (int i = 0; i < 9; ++i) {
      Feed(lease.session(), Counting(1, 300));
      ASSERT_TRUE(lease.Offer().ok());
    }
    ASSERT_TRUE(lease.Release().ok());
    ASSERT_TRUE(store->SaveSnapshots().ok());
  }
  const auto store = Open(folder);
  EXPECT_EQ(Reused(*store, 3, 50), 3);
  EXPECT_EQ(store->Stats().exact_hits, 1);
  EXPECT_EQ(Reused(*store, 30, 100), 21);
  EXPECT_EQ(Reused(*store, 5, 200), 5);
  EXPECT_TRUE(AreEqual(store->Create("", Counting(21, 100), 0).value().session(), Fed(Counting(21, 100))));
}

TEST(StateStoreDiskTest, BeyondTheSnapshotBudgetTheLeastRecentlyUsedGo) {
  const std::string folder = NewTestFolder();
  int64_t size = 0;
  {
    const auto store = Open(folder);
    for (const int32_t first : {100, 200, 300}) {
      KeepPrompt(*store, 10, first);
      ASSERT_TRUE(store->SaveSnapshots().ok());
      absl::SleepFor(kTick);
    }
    size = SnapshotBytes(folder) / 3;
    ASSERT_TRUE(store->Create("saved", {}, 0).ok());
    ASSERT_TRUE(store->Save("saved").ok());
  }
  {
    const auto store = Open(folder, 3 * size + size / 2);
    EXPECT_EQ(Reused(*store, 10, 100), 10);  // used again
    absl::SleepFor(kTick);
    KeepPrompt(*store, 10, 400);
    ASSERT_TRUE(store->SaveSnapshots().ok());
    EXPECT_EQ(store->Stats().dropped, 1);
  }
  EXPECT_LE(SnapshotBytes(folder), 3 * size + size / 2);
  {
    const auto store = Open(folder);
    EXPECT_EQ(Reused(*store, 10, 200), 0);
    for (const int32_t first : {300, 400, 100}) {
      EXPECT_EQ(Reused(*store, 10, first), 10) << first;
      absl::SleepFor(kTick);
    }
    EXPECT_EQ(store->List().size(), 1);
  }
  {
    const auto store = Open(folder, size + size / 2);  // the next process may have less; `100` was used last
    ASSERT_TRUE(store->SaveSnapshots().ok());
    EXPECT_EQ(Reused(*store, 10, 100), 10);
    EXPECT_EQ(store->Stats().snapshots, 1);
    EXPECT_EQ(store->List().size(), 1);
  }
}

TEST(StateStoreDiskTest, WhatNeverFitsIsRefusedAndNothingGoesForIt) {
  const std::string folder = NewTestFolder();
  const auto store = Open(folder, 2000);
  KeepPrompt(*store, 10, 100);
  ASSERT_TRUE(store->SaveSnapshots().ok());
  const int64_t before = SnapshotBytes(folder);
  KeepPrompt(*store, 300, 200);
  KeepPrompt(*store, 9, 600);
  const absl::Status status = store->SaveSnapshots();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("do not fit into the snapshot budget of 2000 bytes"));
  EXPECT_GE(SnapshotBytes(folder), before);
  // A session is no snapshot.
  SessionLease lease = store->Create("talk", {}, 400).value();
  Feed(lease.session(), Counting(400, 700));
  ASSERT_TRUE(lease.Release().ok());
  EXPECT_TRUE(store->Save("talk").ok());
}

TEST(StateStoreDiskTest, OtherModelsSnapshotsCountAndGo) {
  const std::string folder = NewTestFolder();
  {
    const auto store = Open(folder, kPlenty, OtherModel());
    KeepPrompt(*store, 10, 100);
    ASSERT_TRUE(store->SaveSnapshots().ok());
    ASSERT_TRUE(store->Create("theirs", {}, 0).ok());
    ASSERT_TRUE(store->Save("theirs").ok());
  }
  const int64_t size = SnapshotBytes(folder);
  const std::string mine = folder + "/snapshots/mine.kvmstate";
  fs::copy_file(folder + "/sessions/theirs.kvmstate", mine);  // nobody wrote that name
  const auto store = Open(folder, size + size / 2);
  KeepPrompt(*store, 10, 200);
  ASSERT_TRUE(store->SaveSnapshots().ok());
  EXPECT_EQ(Reused(*store, 10, 200), 10);
  EXPECT_TRUE(fs::exists(mine));
  EXPECT_TRUE(fs::exists(folder + "/sessions/theirs.kvmstate"));
  EXPECT_EQ(SnapshotBytes(folder) - static_cast<int64_t>(fs::file_size(mine)), size);
}

TEST(StateStoreDiskTest, PinsAreStillThereTheNextTime) {
  const std::string folder = NewTestFolder();
  const auto add = [](StateStore& store, const std::string& name) {
    ASSERT_TRUE(store.Create(name, Counting(10), 0).ok());
    ASSERT_TRUE(store.Save(name).ok());
  };
  const auto pinned = [](StateStore& store) {
    std::string names;
    for (const SessionInfo& session : store.List()) names += session.pinned ? session.name + " " : "";
    return names;
  };
  {
    const auto store = Open(folder, kPlenty, OtherModel());
    add(*store, "theirs");
    ASSERT_TRUE(store->Pin("theirs").ok());
  }
  {
    const auto store = Open(folder);
    for (const char* const name : {"a", "b", "c"}) add(*store, name);
    ASSERT_TRUE(store->Pin("a").ok());
    ASSERT_TRUE(store->Pin("c").ok());
    ASSERT_TRUE(store->Create("unsaved", {}, 0).ok());
    ASSERT_TRUE(store->Pin("unsaved").ok());
    ASSERT_TRUE(store->Create("later", {}, 0).ok());
    ASSERT_TRUE(store->Pin("later").ok());
    ASSERT_TRUE(store->Save("later").ok());
  }
  {
    const auto store = Open(folder);
    EXPECT_EQ(pinned(*store), "a c later ");
    EXPECT_FALSE(store->List()[0].in_memory);
    ASSERT_TRUE(store->Unpin("a").ok());
    ASSERT_TRUE(store->Drop("later").ok());
    add(*store, "later");
  }
  {
    const auto store = Open(folder);
    EXPECT_EQ(pinned(*store), "c ");
    // From its first use on it stays in memory.
    ASSERT_TRUE(store->Load("c").ok());
    EXPECT_TRUE(store->List()[2].in_memory);
  }
  EXPECT_EQ(pinned(*Open(folder, kPlenty, OtherModel())), "theirs ");
}

TEST(StateStoreDiskTest, APinsFileOfSomebodyElseIsLeftAlone) {
  const std::string folder = NewTestFolder();
  fs::create_symlink("nowhere", folder + "/pins");
  const auto store = Open(folder);
  ASSERT_EQ(store->skipped_files().size(), 1);
  EXPECT_EQ(store->skipped_files()[0].path, folder + "/pins");
  ASSERT_TRUE(store->Create("a", {}, 0).ok());
  ASSERT_TRUE(store->Save("a").ok());
  EXPECT_EQ(store->Pin("a").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(store->List()[0].pinned);
}

TEST(StateStoreDiskTest, ANameWithoutAFileIsTakenForEverything) {
  const std::string folder = NewTestFolder();
  fs::create_directory(folder + "/sessions");
  ASSERT_EQ(mkfifo((folder + "/sessions/pipe.kvmstate").c_str(), 0600), 0);
  fs::create_symlink("nowhere", folder + "/sessions/link.kvmstate");
  fs::create_directory(folder + "/sessions/folder.kvmstate");
  const auto store = Open(folder);
  EXPECT_EQ(store->skipped_files().size(), 3);
  EXPECT_TRUE(store->List().empty());
  for (const char* const name : {"pipe", "link", "folder"}) {
    EXPECT_EQ(store->Create(name, {}, 0).status().code(), absl::StatusCode::kAlreadyExists) << name;
    EXPECT_EQ(store->Lease(name, 0).status().code(), absl::StatusCode::kFailedPrecondition) << name;
    for (const absl::Status& status : {store->Save(name), store->Load(name), store->Drop(name), store->Pin(name),
                                       store->Unpin(name), store->Fork(name, "copy")}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << name;
      EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("/sessions/", name, ".kvmstate: a "))) << name;
    }
  }
}

TEST(StateStoreDiskTest, ASnapshotThatHadToGoUnwrittenIsToldOf) {
  const std::string folder = NewTestFolder();
  StateStoreOptions options = CountingOptions(3 * CountingBytes(8), folder);
  options.snapshot_budget = 1;
  const auto store = StateStore::Open(options, CountingModel()).value();
  for (const int32_t first : {100, 200, 300, 400, 500}) KeepPrompt(*store, 8, first);
  EXPECT_GT(store->Stats().dropped, 0);
  const absl::Status status = store->SaveSnapshots();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(SnapshotBytes(folder), 0);
}

}  // namespace
}  // namespace kvm
