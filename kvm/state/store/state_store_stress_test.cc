// Everything at once from several threads: what a lease gives is always what the last one gave back.

#include <atomic>
#include <filesystem>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvm/state/snapshot/snapshot_testing.h"
#include "kvm/state/store/state_store.h"
#include "kvm/state/store/state_store_testing.h"

namespace kvm {
namespace {

namespace fs = std::filesystem;

constexpr int kThreads = 4;
constexpr int kSteps = 250;
constexpr int kNames = 3;  // of each thread, and of all
constexpr int64_t kChunk = 8;

// What may come of a request when others are at work.
bool IsExpected(const absl::Status& status) {
  return status.ok() || absl::IsFailedPrecondition(status) || absl::IsNotFound(status) ||
         absl::IsAlreadyExists(status) || absl::IsResourceExhausted(status);
}

class Worker {
 public:
  Worker(StateStore& store, int number) : store_(store), number_(number), random_(number) {}

  void Run() {
    for (int step = 0; step < kSteps; ++step) {
      OneOfMine(static_cast<int>(random_() % kNames));
      OneOfAll();
    }
  }

  // Every session of this thread's own is as it left it.
  void CheckMine() {
    for (int i = 0; i < kNames; ++i) {
      const absl::StatusOr<SessionLease> lease = store_.Lease(Mine(i), 0);
      ASSERT_EQ(lease.ok(), !expected_[i].empty()) << lease.status();
    }
  }

 private:
  std::string Mine(int i) const { return absl::StrCat("t", number_, "-", i); }
  std::string Shared() { return absl::StrCat("all-", random_() % kNames); }

  // Only this thread extends and drops these, while others save, load, pin and fork them.
  void OneOfMine(int i) {
    std::vector<int32_t>& expected = expected_[i];
    if (expected.empty()) {
      Use(store_.Create(Mine(i), Prompt(), 8), &expected);
    } else if (expected.size() > 60) {
      const absl::Status dropped = store_.Drop(Mine(i));
      EXPECT_TRUE(dropped.ok()) << dropped;
      expected.clear();
    } else {
      Use(store_.Lease(Mine(i), 8), &expected);
    }
  }

  void OneOfAll() {
    const std::string name = random_() % 2 == 0 ? Shared() : absl::StrCat("t", random_() % kThreads, "-0");
    const std::string shared = Shared();
    switch (random_() % 10) {
      case 0:
        return Use(store_.Create(shared, Prompt(), 8), nullptr);
      case 1:
        return Use(store_.Create("", Prompt(), 8), nullptr);
      case 2:
        return Use(store_.Lease(shared, 8), nullptr);
      case 3:
        return Expect(store_.Fork(name, shared));
      case 4:
        return Expect(store_.Save(name));
      case 5:
        return Expect(store_.Load(name));
      case 6:
        return Expect(store_.Pin(name));
      case 7:
        return Expect(store_.Unpin(name));
      case 8:
        return Expect(store_.Drop(shared));
      default:
        store_.List();
        EXPECT_LE(store_.Stats().exact_hits, store_.Stats().hits);
    }
  }

  void Expect(const absl::Status& status) { EXPECT_TRUE(IsExpected(status)) << status; }

  // One of a few prompts that begin alike.
  std::vector<int32_t> Prompt() {
    std::vector<int32_t> prompt = Counting(20);
    prompt[random_() % 4 * 5] = static_cast<int32_t>(random_() % 2 * 100);
    return prompt;
  }

  // Checks, extends and gives back a session; `expected` is what it had and has.
  void Use(absl::StatusOr<SessionLease> lease, std::vector<int32_t>* expected) {
    if (!lease.ok()) return Expect(lease.status());
    Session& session = lease->session();
    if (expected != nullptr && !expected->empty()) {
      EXPECT_EQ(session.tokens, *expected);
    }
    EXPECT_TRUE(AreEqual(session, Fed(session.tokens)));
    if (random_() % 8 == 0) {
      const int64_t position = session.state.position() / 2;
      const absl::StatusOr<std::vector<int32_t>> replay = lease->Rewind(position);
      ASSERT_TRUE(replay.ok()) << replay.status();
      Feed(session, *replay);
      EXPECT_EQ(session.state.position(), position);
    }
    const int64_t count = 1 + static_cast<int64_t>(random_() % 8);
    for (int64_t i = 0; i < count; ++i) {
      Feed(session, {static_cast<int32_t>(session.tokens.size())});
      if (session.state.position() % kChunk == 0) Expect(lease->Offer());
    }
    if (expected != nullptr) *expected = session.tokens;
    Expect(lease->Release());
  }

  StateStore& store_;
  const int number_;
  std::minstd_rand random_;
  std::vector<int32_t> expected_[kNames];  // tokens; empty: there is no session
};

void Stress(const StateStoreOptions& options) {
  const auto store = StateStore::Open(options, CountingModel()).value();
  std::vector<Worker> workers;
  for (int t = 0; t < kThreads; ++t) workers.emplace_back(*store, t);
  std::vector<std::thread> threads;
  for (Worker& worker : workers) threads.emplace_back([&worker] { worker.Run(); });
  for (std::thread& thread : threads) thread.join();

  for (const SessionInfo& session : store->List()) ASSERT_TRUE(store->Unpin(session.name).ok());
  for (Worker& worker : workers) worker.CheckMine();
  for (const SessionInfo& session : store->List()) {
    SessionLease lease = store->Lease(session.name, 0).value();
    EXPECT_TRUE(AreEqual(lease.session(), Fed(lease.session().tokens)));
  }
  const StateStoreStats stats = store->Stats();
  EXPECT_EQ(stats.leased_bytes, 0);
  EXPECT_LE(stats.memory_bytes, options.memory_budget);
  EXPECT_EQ(stats.disk_errors, 0);
  EXPECT_GT(stats.hits, 0);
  int64_t disk_bytes = 0;
  if (!options.folder.empty()) {
    EXPECT_GT(stats.moved_to_disk, 0);
    EXPECT_GT(stats.restored, 0);
    for (const auto& entry : fs::recursive_directory_iterator(options.folder)) {
      if (entry.path().extension() == ".kvmstate") disk_bytes += static_cast<int64_t>(entry.file_size());
    }
  }
  EXPECT_EQ(stats.disk_bytes, disk_bytes);
  for (const SessionInfo& session : store->List()) ASSERT_TRUE(store->Drop(session.name).ok());
  EXPECT_EQ(store->Stats().sessions, 0);
}

TEST(StateStoreStressTest, InMemory) { Stress(CountingOptions(int64_t{100} << 10)); }

TEST(StateStoreStressTest, WithMostSessionsOnDisk) { Stress(CountingOptions(int64_t{7} << 10, NewTestFolder())); }

TEST(StateStoreStressTest, WithLittleDisk) {
  StateStoreOptions options = CountingOptions(int64_t{14} << 10, NewTestFolder());
  options.disk_budget = int64_t{48} << 10;
  Stress(options);
}

}  // namespace
}  // namespace kvm
