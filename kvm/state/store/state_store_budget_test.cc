// Budgets of memory and disk: who moves out, who stays, who is refused. Sizes are CountingBytes.

#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/state/snapshot/snapshot_testing.h"
#include "kvm/state/store/state_store.h"
#include "kvm/state/store/state_store_testing.h"

namespace kvm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Each of the sessions here has ten tokens.
constexpr int64_t kBytes = CountingBytes(10);
static_assert(kBytes == 210);

std::unique_ptr<StateStore> Open(StateStoreOptions options) {
  options.retention.recent = 0;  // nothing in memory but sessions
  return StateStore::Open(std::move(options), CountingModel()).value();
}

std::vector<int32_t> TokensOf(int which) { return Counting(10, 1000 * which); }

absl::Status Add(StateStore& store, absl::string_view name, int which) {
  absl::StatusOr<SessionLease> lease = store.Create(name, TokensOf(which), 0);
  if (!lease.ok()) return lease.status();
  Feed(lease->session(), TokensOf(which));
  return lease->Release();
}

void ExpectSession(StateStore& store, absl::string_view name, int which) {
  absl::StatusOr<SessionLease> lease = store.Lease(name, 0);
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_TRUE(AreEqual(lease->session(), Fed(TokensOf(which)))) << name;
}

std::vector<std::string> InMemory(const StateStore& store) {
  std::vector<std::string> names;
  for (const SessionInfo& session : store.List()) {
    if (session.in_memory) names.push_back(session.name);
  }
  return names;
}

TEST(StateStoreBudgetTest, LeastRecentlyUsedMovesToDiskAndComesBack) {
  const auto store = Open(CountingOptions(3 * kBytes, NewTestFolder()));
  for (int i : {1, 2, 3}) ASSERT_TRUE(Add(*store, absl::StrCat("s", i), i).ok());
  EXPECT_EQ(store->Stats().moved_to_disk, 0);
  ExpectSession(*store, "s1", 1);
  ASSERT_TRUE(Add(*store, "s4", 4).ok());
  EXPECT_THAT(InMemory(*store), ElementsAre("s1", "s3", "s4"));
  EXPECT_EQ(store->Stats().moved_to_disk, 1);
  EXPECT_TRUE(store->List()[1].on_disk);
  EXPECT_EQ(store->List()[1].position, 10);
  ExpectSession(*store, "s2", 2);
  EXPECT_EQ(store->Stats().restored, 1);
  EXPECT_THAT(InMemory(*store), ElementsAre("s1", "s2", "s4"));
  EXPECT_LE(store->Stats().memory_bytes, 3 * kBytes);
}

TEST(StateStoreBudgetTest, PinnedAndLeasedStay) {
  const auto store = Open(CountingOptions(3 * kBytes, NewTestFolder()));
  for (int i : {1, 2}) ASSERT_TRUE(Add(*store, absl::StrCat("s", i), i).ok());
  ASSERT_TRUE(store->Pin("s1").ok());
  const SessionLease lease = store->Lease("s2", 0).value();
  for (int i : {3, 4, 5}) ASSERT_TRUE(Add(*store, absl::StrCat("s", i), i).ok());
  EXPECT_THAT(InMemory(*store), ElementsAre("s1", "s2", "s5"));
  ASSERT_TRUE(store->Unpin("s1").ok());
  ASSERT_TRUE(Add(*store, "s6", 6).ok());
  EXPECT_THAT(InMemory(*store), ElementsAre("s2", "s5", "s6"));
}

TEST(StateStoreBudgetTest, PinBringsBack) {
  const auto store = Open(CountingOptions(2 * kBytes, NewTestFolder()));
  for (int i : {1, 2, 3}) ASSERT_TRUE(Add(*store, absl::StrCat("s", i), i).ok());
  EXPECT_THAT(InMemory(*store), ElementsAre("s2", "s3"));
  ASSERT_TRUE(store->Pin("s1").ok());
  EXPECT_THAT(InMemory(*store), ElementsAre("s1", "s3"));
  ASSERT_TRUE(store->Pin("s3").ok());
  const absl::Status full = store->Pin("s2");
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(store->List()[1].pinned);
  EXPECT_EQ(store->Load("s2").code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(store->Unpin("s3").ok());
  ASSERT_TRUE(store->Load("s2").ok());
  EXPECT_THAT(InMemory(*store), ElementsAre("s1", "s2"));
}

TEST(StateStoreBudgetTest, WhatCannotFitIsRefusedWithTheNumbers) {
  const auto store = Open(CountingOptions(1000, NewTestFolder()));
  ASSERT_TRUE(Add(*store, "pinned", 1).ok());
  ASSERT_TRUE(store->Pin("pinned").ok());
  ASSERT_TRUE(Add(*store, "other", 2).ok());
  const SessionLease lease = store->Create("leased", TokensOf(3), 10).value();  // 380 bytes
  // 410 bytes are left: 21 tokens.
  for (const auto& [prompt, new_tokens, fits] : {std::tuple(10, 11, true), {10, 12, false}, {0, 22, false}}) {
    const absl::Status status = store->Create("new", Counting(prompt, 50), new_tokens).status();
    ASSERT_EQ(status.ok(), fits) << status;
    if (fits) {
      ASSERT_TRUE(store->Drop("new").ok());
      continue;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    for (const char* part : {"\"new\"", "22 tokens", "414 bytes", "1000 bytes", "590 that are pinned or leased"}) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    }
  }
  // Nothing was done for those refused.
  EXPECT_EQ(store->List().size(), 3);
  EXPECT_EQ(store->Stats().refused, 2);
  EXPECT_EQ(store->Stats().leased_bytes, 380);
  EXPECT_EQ(store->Lease("other", 12).status().code(), absl::StatusCode::kResourceExhausted);
  ExpectSession(*store, "other", 2);
  EXPECT_EQ(store->Create("new", {}, int64_t{1} << 40).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(StateStoreBudgetTest, OwnMemoryIsNotInTheWayOfALease) {
  const auto store = Open(CountingOptions(kBytes, NewTestFolder()));
  ASSERT_TRUE(Add(*store, "a", 1).ok());
  ASSERT_TRUE(store->Pin("a").ok());
  ExpectSession(*store, "a", 1);
  EXPECT_EQ(store->Lease("a", 1).status().code(), absl::StatusCode::kResourceExhausted);
  ExpectSession(*store, "a", 1);
}

TEST(StateStoreBudgetTest, WithoutFolderSessionsAreNeverGivenUp) {
  const auto store = Open(CountingOptions(2 * kBytes));
  for (int i : {1, 2}) ASSERT_TRUE(Add(*store, absl::StrCat("s", i), i).ok());
  const absl::Status status = Add(*store, "s3", 3);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("420"));
  for (int i : {1, 2}) ExpectSession(*store, absl::StrCat("s", i), i);
  ASSERT_TRUE(store->Drop("s1").ok());
  EXPECT_TRUE(Add(*store, "s3", 3).ok());
}

TEST(StateStoreBudgetTest, SnapshotsGoWhereThereIsNoFolder) {
  StateStoreOptions options = CountingOptions(CountingBytes(8) + kBytes);
  const auto store = Open(options);
  {
    SessionLease lease = store->Create("", Counting(8), 0).value();
    Feed(lease.session(), Counting(8));
  }
  EXPECT_EQ(store->Stats().snapshots, 1);
  ASSERT_TRUE(Add(*store, "a", 1).ok());
  EXPECT_EQ(store->Stats().snapshots, 1);
  ASSERT_TRUE(store->Create("b", {}, 1).ok());  // 57 bytes
  EXPECT_EQ(store->Stats().snapshots, 0);
  EXPECT_EQ(store->Stats().dropped, 1);
  // One that was offered says so when it is missed.
  ASSERT_TRUE(store->Drop("b").ok());
  { const auto lease = store->Create("c", Counting(8), 0); }
  EXPECT_EQ(store->Stats().evicted, 1);
}

TEST(StateStoreBudgetTest, KeptSnapshotsMoveToDiskAndAreFoundThere) {
  const auto store = Open(CountingOptions(2 * kBytes, NewTestFolder()));
  {
    SessionLease lease = store->Create("", Counting(8), 0).value();
    Feed(lease.session(), Counting(8));
  }
  for (int i : {1, 2}) ASSERT_TRUE(Add(*store, absl::StrCat("s", i), i).ok());
  EXPECT_EQ(store->Stats().moved_to_disk, 1);
  EXPECT_EQ(store->Stats().snapshots, 1);
  {
    SessionLease lease = store->Create("again", Counting(10), 0).value();
    EXPECT_TRUE(AreEqual(lease.session(), Fed(Counting(8))));
  }
  EXPECT_EQ(store->Stats().restored, 1);
  EXPECT_EQ(store->Stats().tokens_reused, 8);
}

TEST(StateStoreBudgetTest, DiskBudgetRemovesSnapshotsButNoSessions) {
  StateStoreOptions options = CountingOptions(kBytes, NewTestFolder());
  int64_t file_bytes = 0;
  {
    const auto probe = Open(CountingOptions(kBytes, NewTestFolder()));
    ASSERT_TRUE(Add(*probe, "s1", 1).ok());
    ASSERT_TRUE(probe->Save("s1").ok());
    file_bytes = probe->Stats().disk_bytes;
    EXPECT_GT(file_bytes, kBytes);
  }
  options.disk_budget = 2 * file_bytes + kBytes / 2;
  const auto store = Open(options);
  {
    SessionLease lease = store->Create("", Counting(8), 0).value();
    Feed(lease.session(), Counting(8));
  }
  ASSERT_TRUE(Add(*store, "s1", 1).ok());  // the snapshot goes to disk
  EXPECT_EQ(store->Stats().moved_to_disk, 1);
  ASSERT_TRUE(Add(*store, "s2", 2).ok());  // s1 goes to disk
  ASSERT_TRUE(Add(*store, "s3", 3).ok());  // s2 goes to disk: the snapshot is given up
  EXPECT_EQ(store->Stats().moved_to_disk, 3);
  EXPECT_EQ(store->Stats().snapshots, 0);
  EXPECT_EQ(store->Stats().dropped, 1);
  EXPECT_LE(store->Stats().disk_bytes, options.disk_budget);
  // No room on disk for s3.
  const absl::Status status = Add(*store, "s4", 4);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("disk budget of ", options.disk_budget)));
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"s3\" stays in memory"));
  ExpectSession(*store, "s3", 3);
  ASSERT_TRUE(store->Drop("s2").ok());
  EXPECT_TRUE(Add(*store, "s4", 4).ok());
  ExpectSession(*store, "s4", 4);
  ASSERT_TRUE(store->Drop("s1").ok());
  ExpectSession(*store, "s3", 3);
}

TEST(StateStoreBudgetTest, ASessionThatIsAsInItsFileMovesWithoutWriting) {
  const std::string folder = NewTestFolder();
  const auto store = Open(CountingOptions(2 * kBytes, folder));
  for (int i : {1, 2}) ASSERT_TRUE(Add(*store, absl::StrCat("s", i), i).ok());
  ASSERT_TRUE(store->Save("s1").ok());
  const int64_t disk_bytes = store->Stats().disk_bytes;
  ASSERT_TRUE(store->Save("s1").ok());
  ASSERT_TRUE(Add(*store, "s3", 3).ok());
  EXPECT_THAT(InMemory(*store), ElementsAre("s2", "s3"));
  EXPECT_EQ(store->Stats().disk_bytes, disk_bytes);
}

TEST(StateStoreBudgetTest, MoreTokensThanAnnouncedAreCountedWhenGivenBack) {
  const auto store = Open(CountingOptions(2 * kBytes, NewTestFolder()));
  ASSERT_TRUE(Add(*store, "a", 1).ok());
  {
    SessionLease lease = store->Create("b", {}, 1).value();
    Feed(lease.session(), TokensOf(2));
    Feed(lease.session(), TokensOf(3));
    EXPECT_TRUE(lease.Release().ok());
  }
  EXPECT_THAT(InMemory(*store), ElementsAre("b"));
  EXPECT_EQ(store->Stats().memory_bytes, CountingBytes(20));
  {
    SessionLease lease = store->Lease("b", 0).value();
    Feed(lease.session(), TokensOf(4));
    EXPECT_TRUE(lease.Release().ok());
  }
  // Larger than the budget on its own, it is not lost.
  EXPECT_THAT(InMemory(*store), IsEmpty());
  ExpectSession(*store, "a", 1);
  EXPECT_EQ(store->Lease("b", 0).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace kvm
