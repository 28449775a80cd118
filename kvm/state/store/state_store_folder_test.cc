// What is in the folder: coming back, other models' files, damage, and disks that fail.

#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/state/snapshot/snapshot.h"
#include "kvm/state/snapshot/snapshot_testing.h"
#include "kvm/state/store/state_store.h"
#include "kvm/state/store/state_store_testing.h"

namespace kvm {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kPlenty = 1 << 30;

std::unique_ptr<StateStore> Open(const std::string& folder, int64_t memory_budget = kPlenty) {
  return StateStore::Open(CountingOptions(memory_budget, folder), CountingModel()).value();
}

// A session of ten tokens of its own.
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

void FlipByte(const std::string& path, int64_t from_end) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-from_end, std::ios::end);
  const char byte = static_cast<char>(file.get());
  file.seekp(-from_end, std::ios::end);
  file.put(static_cast<char>(byte ^ 1));
  ASSERT_TRUE(file.good());
}

// No file may grow beyond `bytes`, as on a full disk, while this object lives.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    previous_ = signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {bytes, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, previous_);
  }

 private:
  rlimit before_;
  void (*previous_)(int);
};

TEST(StateStoreFolderTest, SavedSessionsAndSnapshotsComeBack) {
  const std::string folder = NewTestFolder();
  {
    const auto store = Open(folder, 3 * CountingBytes(10));
    {
      SessionLease lease = store->Create("", Counting(16), 0).value();
      Feed(lease.session(), Counting(16));
    }
    ASSERT_TRUE(Add(*store, "saved", 1).ok());
    ASSERT_TRUE(store->Save("saved").ok());
    ASSERT_TRUE(Add(*store, "moved", 2).ok());
    ASSERT_TRUE(Add(*store, "lost", 3).ok());
    const SessionLease lease = store->Create("room", {}, 33).value();  // pushes all others out
    EXPECT_EQ(store->Stats().memory_bytes, 0);
    EXPECT_EQ(store->Stats().moved_to_disk, 4);
  }
  const auto store = Open(folder);
  EXPECT_THAT(store->skipped_files(), IsEmpty());
  const std::vector<SessionInfo> sessions = store->List();
  ASSERT_EQ(sessions.size(), 3);
  EXPECT_EQ(sessions[1].name, "moved");
  EXPECT_EQ(sessions[1].position, 10);
  EXPECT_FALSE(sessions[1].in_memory);
  EXPECT_TRUE(sessions[1].on_disk);
  EXPECT_EQ(store->Stats().disk_bytes,
            sessions[0].bytes + sessions[1].bytes + sessions[2].bytes +
                static_cast<int64_t>(fs::file_size(fs::directory_iterator(folder + "/snapshots")->path())));
  ExpectSession(*store, "saved", 1);
  ExpectSession(*store, "moved", 2);
  SessionLease lease = store->Create("new", Counting(20), 0).value();
  EXPECT_TRUE(AreEqual(lease.session(), Fed(Counting(16))));
  EXPECT_EQ(store->Stats().hits, 1);
}

TEST(StateStoreFolderTest, SnapshotsThatAreKeptCanBeSavedWithoutMovingOut) {
  const std::string folder = NewTestFolder();
  {
    const auto store = Open(folder);
    SessionLease lease = store->Create("", Counting(30), 0).value();
    for (const int64_t end : {8, 16, 24, 30}) {
      Feed(lease.session(),
           Counting(end - lease.session().state.position(), static_cast<int32_t>(lease.session().state.position())));
      ASSERT_TRUE(lease.Offer().ok());
    }
    ASSERT_TRUE(store->SaveSnapshots().ok());
    EXPECT_EQ(store->Stats().moved_to_disk, 0);
    const int64_t bytes = store->Stats().disk_bytes;
    ASSERT_TRUE(store->SaveSnapshots().ok());  // nothing to do
    EXPECT_EQ(store->Stats().disk_bytes, bytes);
  }
  const auto store = Open(folder);
  EXPECT_EQ(store->Stats().snapshots, 3);  // not the one at 30, which was among the newest only
  EXPECT_TRUE(AreEqual(store->Create("", Counting(30), 0).value().session(), Fed(Counting(24))));
  const auto in_memory = StateStore::Open(CountingOptions(kPlenty), CountingModel()).value();
  EXPECT_EQ(in_memory->SaveSnapshots().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(StateStoreFolderTest, TheSavedVersionIsTheLastOneSaved) {
  const std::string folder = NewTestFolder();
  {
    const auto store = Open(folder);
    ASSERT_TRUE(Add(*store, "a", 1).ok());
    ASSERT_TRUE(store->Save("a").ok());
    Feed(store->Lease("a", 5).value().session(), Counting(5));
    EXPECT_FALSE(store->List()[0].on_disk);  // not as it is now
  }
  {
    const auto store = Open(folder);
    ExpectSession(*store, "a", 1);
    Feed(store->Lease("a", 5).value().session(), Counting(5));
    ASSERT_TRUE(store->Save("a").ok());
  }
  const auto store = Open(folder);
  EXPECT_EQ(store->List()[0].position, 15);
}

TEST(StateStoreFolderTest, DroppedSessionsStayAway) {
  const std::string folder = NewTestFolder();
  {
    const auto store = Open(folder);
    ASSERT_TRUE(Add(*store, "a", 1).ok());
    ASSERT_TRUE(store->Save("a").ok());
    ASSERT_TRUE(store->Drop("a").ok());
    EXPECT_EQ(store->Stats().disk_bytes, 0);
  }
  EXPECT_THAT(Open(folder)->List(), IsEmpty());
}

TEST(StateStoreFolderTest, FolderIsForOneStoreAtATime) {
  const std::string folder = NewTestFolder();
  const auto store = Open(folder);
  const absl::Status status = StateStore::Open(CountingOptions(kPlenty, folder), CountingModel()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("in use by process"));
}

TEST(StateStoreFolderTest, OtherModelsFilesAreLeftAloneAndReported) {
  const std::string folder = NewTestFolder();
  StoreModel other = CountingModel();
  ++other.identity.fingerprint;
  {
    const auto store = StateStore::Open(CountingOptions(CountingBytes(20), folder), other).value();
    {
      SessionLease lease = store->Create("", Counting(16), 0).value();
      Feed(lease.session(), Counting(16));
    }
    ASSERT_TRUE(Add(*store, "theirs", 1).ok());  // moves the snapshot to disk
    ASSERT_TRUE(store->Save("theirs").ok());
  }
  {
    const auto store = Open(folder, CountingBytes(20));
    ASSERT_EQ(store->skipped_files().size(), 2);
    for (const SkippedFile& file : store->skipped_files()) {
      EXPECT_EQ(file.why.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_EQ(file.moved_to, "");
      EXPECT_TRUE(fs::exists(file.path));
    }
    EXPECT_THAT(store->List(), IsEmpty());
    const absl::Status taken = Add(*store, "theirs", 2);
    EXPECT_EQ(taken.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(std::string(taken.message()), HasSubstr("fingerprint"));
    ASSERT_TRUE(Add(*store, "ours", 2).ok());
    EXPECT_EQ(store->Fork("ours", "theirs").code(), absl::StatusCode::kAlreadyExists);
    // The same tokens of another model are another snapshot, also on disk.
    {
      SessionLease lease = store->Create("", Counting(16), 0).value();
      EXPECT_EQ(lease.session().state.position(), 0);
      Feed(lease.session(), Counting(16));
    }
    ASSERT_TRUE(store->Load("ours").ok());
  }
  const auto store = StateStore::Open(CountingOptions(kPlenty, folder), other).value();
  EXPECT_EQ(store->skipped_files().size(), 2);
  ExpectSession(*store, "theirs", 1);
  EXPECT_EQ(store->Create("", Counting(16), 0).value().session().state.position(), 16);
}

TEST(StateStoreFolderTest, FilesOfANewerVersionAreLeftAloneAndReported) {
  const std::string folder = NewTestFolder();
  {
    const auto store = Open(folder);
    ASSERT_TRUE(Add(*store, "a", 1).ok());
    ASSERT_TRUE(store->Save("a").ok());
  }
  const std::string path = folder + "/sessions/a.kvmstate";
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(8);  // the version
    file.put(2);
    ASSERT_TRUE(file.good());
  }
  const auto store = Open(folder);
  ASSERT_EQ(store->skipped_files().size(), 1);
  EXPECT_EQ(store->skipped_files()[0].why.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(store->skipped_files()[0].moved_to, "");
  EXPECT_TRUE(fs::exists(path));
  EXPECT_FALSE(fs::exists(path + ".damaged"));
  const absl::Status taken = Add(*store, "a", 2);
  EXPECT_EQ(taken.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(taken.message()), HasSubstr("format version 2; expected 1"));
}

TEST(StateStoreFolderTest, DamagedFilesAreMovedAsideAndReported) {
  const std::string folder = NewTestFolder();
  {
    const auto store = Open(folder);
    for (int i : {1, 2}) {
      ASSERT_TRUE(Add(*store, absl::StrCat("s", i), i).ok());
      ASSERT_TRUE(store->Save(absl::StrCat("s", i)).ok());
    }
  }
  const std::string path = folder + "/sessions/s1.kvmstate";
  fs::resize_file(path, fs::file_size(path) / 2);
  ASSERT_TRUE(WriteFileAtomically(folder + "/snapshots/1-00.kvmstate", "no snapshot").ok());
  const auto store = Open(folder);
  ASSERT_EQ(store->skipped_files().size(), 2);
  for (const SkippedFile& file : store->skipped_files()) {
    EXPECT_EQ(file.why.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(file.why.message()), HasSubstr(file.path));
    EXPECT_EQ(file.moved_to, file.path + ".damaged");
    EXPECT_TRUE(fs::exists(file.moved_to));
  }
  ExpectSession(*store, "s2", 2);
  EXPECT_TRUE(Add(*store, "s1", 3).ok());
  EXPECT_TRUE(store->Save("s1").ok());
}

TEST(StateStoreFolderTest, DamageFoundWhenASessionIsAskedFor) {
  const std::string folder = NewTestFolder();
  {
    const auto store = Open(folder);
    ASSERT_TRUE(Add(*store, "a", 1).ok());
    ASSERT_TRUE(store->Save("a").ok());
  }
  FlipByte(folder + "/sessions/a.kvmstate", 10);  // in the last tensor
  const auto store = Open(folder);
  EXPECT_THAT(store->skipped_files(), IsEmpty());
  for (const absl::Status& status : {store->Lease("a", 0).status(), store->Load("a"), store->Pin("a")}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("a.kvmstate"));
  }
  EXPECT_EQ(store->Stats().leased_bytes, 0);
  EXPECT_EQ(store->Stats().disk_errors, 3);
  { EXPECT_EQ(store->Create("b", TokensOf(1), 0).value().session().state.position(), 0); }
  EXPECT_EQ(store->Stats().unreadable, 1);
  EXPECT_TRUE(store->Drop("a").ok());
}

TEST(StateStoreFolderTest, ADamagedSnapshotIsSetAsideAndAShorterOneTaken) {
  const std::string folder = NewTestFolder();
  {
    const auto store = Open(folder, CountingBytes(24));
    SessionLease lease = store->Create("", Counting(16), 0).value();
    for (int i : {0, 8}) {
      Feed(lease.session(), Counting(8, i));
      ASSERT_TRUE(lease.Offer().ok());
    }
    ASSERT_TRUE(lease.Release().ok());
    const auto room = store->Create("room", {}, 24);
    ASSERT_TRUE(room.ok()) << room.status();
  }
  std::string longer;
  for (const auto& entry : fs::directory_iterator(folder + "/snapshots")) {
    if (entry.path().filename().string().substr(0, 3) == "16-") longer = entry.path().string();
  }
  ASSERT_NE(longer, "");
  FlipByte(longer, 10);
  const auto store = Open(folder);
  EXPECT_EQ(store->Create("a", Counting(20), 0).value().session().state.position(), 8);
  EXPECT_TRUE(fs::exists(longer + ".damaged"));
  EXPECT_EQ(store->Stats().hits, 1);
}

TEST(StateStoreFolderTest, AFileThatBecameAnotherCannotGiveAWrongState) {
  const std::string folder = NewTestFolder();
  for (int i : {1, 2}) {
    const auto store = Open(folder);
    ASSERT_TRUE(Add(*store, absl::StrCat("s", i), i).ok());
    ASSERT_TRUE(store->Save(absl::StrCat("s", i)).ok());
  }
  const auto store = Open(folder);
  fs::copy_file(folder + "/sessions/s2.kvmstate", folder + "/sessions/s1.kvmstate",
                fs::copy_options::overwrite_existing);
  EXPECT_EQ(store->Create("new", TokensOf(1), 0).value().session().state.position(), 0);
  const absl::Status status = store->Lease("s1", 0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("replaced"));
}

TEST(StateStoreFolderTest, OnAFullDiskNothingIsLost) {
  const std::string folder = NewTestFolder();
  const auto store = Open(folder, 2 * CountingBytes(10));
  ASSERT_TRUE(Add(*store, "s1", 1).ok());
  ASSERT_TRUE(store->Save("s1").ok());
  for (int i : {1, 2}) {
    // s1 goes on from its saved version, so that it has to be written again.
    absl::StatusOr<SessionLease> lease = i == 1 ? store->Lease("s1", 0) : store->Create("s2", TokensOf(2), 0);
    if (i == 2) Feed(lease->session(), TokensOf(2));
    ASSERT_TRUE(lease->Release().ok());
  }
  {
    const FullDisk full(100);
    EXPECT_FALSE(store->Save("s1").ok());
    EXPECT_EQ(store->Stats().disk_errors, 1);
    const absl::Status status = Add(*store, "s3", 3);
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr("\"s3\""));
    EXPECT_THAT(std::string(status.message()), HasSubstr("stays in memory"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(folder));
    EXPECT_EQ(store->Stats().disk_errors, 3);  // both were tried
    EXPECT_EQ(store->List().size(), 2);
    for (int i : {1, 2}) ExpectSession(*store, absl::StrCat("s", i), i);
  }
  EXPECT_TRUE(Add(*store, "s3", 3).ok());
  for (int i : {1, 2, 3}) ExpectSession(*store, absl::StrCat("s", i), i);
}

TEST(StateStoreFolderTest, WhenTheFolderIsGoneSessionsStayInMemory) {
  const std::string folder = NewTestFolder();
  const auto store = Open(folder, 2 * CountingBytes(10));
  for (int i : {1, 2}) ASSERT_TRUE(Add(*store, absl::StrCat("s", i), i).ok());
  fs::remove_all(folder);
  const absl::Status status = Add(*store, "s3", 3);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  for (int i : {1, 2}) ExpectSession(*store, absl::StrCat("s", i), i);
}

TEST(StateStoreFolderTest, AFileThatCannotBeRemovedKeepsItsSession) {
  const std::string folder = NewTestFolder();
  const auto store = Open(folder);
  ASSERT_TRUE(Add(*store, "a", 1).ok());
  ASSERT_TRUE(store->Save("a").ok());
  const std::string path = folder + "/sessions/a.kvmstate";
  fs::remove(path);
  fs::create_directories(path + "/in the way");
  EXPECT_FALSE(store->Drop("a").ok());
  EXPECT_EQ(store->Stats().disk_errors, 1);
  ExpectSession(*store, "a", 1);
}

TEST(StateStoreFolderTest, ABrokenSessionFallsBackToItsFile) {
  const auto store = Open(NewTestFolder());
  ASSERT_TRUE(Add(*store, "a", 1).ok());
  ASSERT_TRUE(store->Save("a").ok());
  {
    SessionLease lease = store->Lease("a", 5).value();
    Feed(lease.session(), Counting(5));
    lease.session().tokens.clear();
    EXPECT_EQ(lease.Release().code(), absl::StatusCode::kInvalidArgument);
  }
  ExpectSession(*store, "a", 1);
}

}  // namespace
}  // namespace kvm
