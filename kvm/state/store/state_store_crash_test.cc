// A process that is killed while it works with a store leaves a folder that opens, with every session that was saved as
// it was then or later. KVM_CRASH_TEST_KILLS sets how often.

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <new>
#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kvm/state/snapshot/snapshot_testing.h"
#include "kvm/state/store/state_store.h"
#include "kvm/state/store/state_store_testing.h"

namespace kvm {
namespace {

namespace fs = std::filesystem;

constexpr int kDefaultKills = 50;
constexpr int kNames = 4;
constexpr int64_t kLongest = 1000;

// What the child says of one session, in memory that outlives it. A session's tokens are its family and 1, 2, …, so
// that family and length say all of it.
struct Account {
  std::atomic<int32_t> family;
  std::atomic<int64_t> saved;        // the length in the last Save that returned; 0: none
  std::atomic<int64_t> longest;      // that may be in the file
  std::atomic<bool> may_be_missing;  // it is not saved yet, or is being dropped
};

struct Accounts {
  std::atomic<int32_t> last_family;
  Account sessions[kNames];
};

std::vector<int32_t> TokensOf(int32_t family, int64_t length) {
  std::vector<int32_t> tokens = Counting(length);
  tokens[0] = family;
  return tokens;
}

std::string NameOf(int i) { return absl::StrCat("session-", i); }

// Room for two or three of the four sessions, so that some move to disk all the time.
StateStoreOptions Options(const std::string& folder) { return CountingOptions(2 * CountingBytes(kLongest), folder); }

class Child {
 public:
  Child(StateStore& store, Accounts& accounts, int seed) : store_(store), accounts_(accounts), random_(seed) {}

  [[noreturn]] void Run() {
    for (;;) {
      const int i = static_cast<int>(random_() % kNames);
      if (!(IsThere(i) ? Change(i) : Make(i))) _exit(1);
    }
  }

 private:
  bool IsThere(int i) const {
    for (const SessionInfo& session : store_.List()) {
      if (session.name == NameOf(i)) return true;
    }
    return false;
  }

  bool Make(int i) {
    Account& account = accounts_.sessions[i];
    account.may_be_missing = true;
    account.saved = 0;
    const int other = (i + 1) % kNames;
    if (random_() % 2 == 0 && store_.Fork(NameOf(other), NameOf(i)).ok()) {
      account.family = accounts_.sessions[other].family.load();
      account.longest = accounts_.sessions[other].longest.load();
      return true;
    }
    account.family = ++accounts_.last_family;
    account.longest = 1;
    absl::StatusOr<SessionLease> lease = store_.Create(NameOf(i), {}, 1);
    if (!lease.ok()) return false;
    Feed(lease->session(), TokensOf(account.family, 1));
    return lease->Release().ok();
  }

  bool Change(int i) {
    Account& account = accounts_.sessions[i];
    const int what = static_cast<int>(random_() % 16);
    if (what == 0 || account.longest > kLongest - 100) {
      account.may_be_missing = true;
      return store_.Drop(NameOf(i)).ok();
    }
    if (what < 8) {
      const int64_t length = account.longest;
      if (!store_.Save(NameOf(i)).ok()) return false;
      account.saved = length;
      account.may_be_missing = false;
      return true;
    }
    absl::StatusOr<SessionLease> lease = store_.Lease(NameOf(i), 100);
    if (!lease.ok()) return false;
    const int64_t length = account.longest + 1 + static_cast<int64_t>(random_() % 100);
    const std::vector<int32_t> tokens = TokensOf(account.family, length);
    account.longest = length;  // before it can move to disk
    while (lease->session().state.position() < length) {
      Feed(lease->session(), {tokens[lease->session().tokens.size()]});
      if (lease->session().state.position() % 8 == 0 && !lease->Offer().ok()) return false;
    }
    return lease->Release().ok();
  }

  StateStore& store_;
  Accounts& accounts_;
  std::minstd_rand random_;
};

[[noreturn]] void WorkUntilKilled(const std::string& folder, Accounts& accounts, int seed) {
  const auto store = StateStore::Open(Options(folder), CountingModel());
  if (!store.ok()) _exit(2);
  Child(**store, accounts, seed).Run();
}

// The folder against the accounts, which then say what was found.
void Check(const std::string& folder, Accounts& accounts) {
  const absl::StatusOr<std::unique_ptr<StateStore>> store = StateStore::Open(Options(folder), CountingModel());
  ASSERT_TRUE(store.ok()) << store.status();
  for (const SkippedFile& file : (*store)->skipped_files()) ADD_FAILURE() << file.why;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    EXPECT_TRUE(entry.is_directory() || entry.path().filename() == "lock" || entry.path().extension() == ".kvmstate")
        << entry.path();
  }
  for (int i = 0; i < kNames; ++i) {
    Account& account = accounts.sessions[i];
    absl::StatusOr<SessionLease> lease = (*store)->Lease(NameOf(i), 0);
    if (absl::IsNotFound(lease.status())) {
      EXPECT_TRUE(account.may_be_missing) << NameOf(i);
      account.may_be_missing = true;
      account.saved = 0;
      continue;
    }
    ASSERT_TRUE(lease.ok()) << lease.status();
    const Session& session = lease->session();
    const int64_t length = session.state.position();
    ASSERT_GT(length, 0);
    if (!account.may_be_missing) {
      EXPECT_EQ(session.tokens[0], account.family);
      EXPECT_GE(length, account.saved);
      EXPECT_LE(length, account.longest);
    }
    EXPECT_TRUE(AreEqual(session, Fed(TokensOf(session.tokens[0], length))));
    account.family = session.tokens[0];
    account.saved = length;
    account.longest = length;
    account.may_be_missing = false;
  }
}

TEST(StateStoreCrashTest, AKilledProcessLeavesEverySavedSession) {
  const std::string folder = NewTestFolder();
  void* const memory = mmap(nullptr, sizeof(Accounts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  Accounts& accounts = *new (memory) Accounts();
  for (Account& account : accounts.sessions) account.may_be_missing = true;

  const char* const wanted = std::getenv("KVM_CRASH_TEST_KILLS");
  const int kills = wanted == nullptr ? kDefaultKills : std::atoi(wanted);
  ASSERT_GT(kills, 0);
  std::mt19937 random(1);
  int64_t saved = 0;
  for (int i = 0; i < kills; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) WorkUntilKilled(folder, accounts, i + 1);
    usleep(static_cast<useconds_t>(random() % 60000));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed with " << WEXITSTATUS(status);
    for (const Account& account : accounts.sessions) saved += account.saved > 0;
    Check(folder, accounts);
    if (HasFailure()) FAIL() << "after kill " << i;
  }
  EXPECT_GT(saved, kills) << "too little was saved for the test to mean much";
  std::cout << kills << " kills, " << saved << " saved sessions looked for, " << accounts.last_family << " begun\n";
  munmap(memory, sizeof(Accounts));
}

}  // namespace
}  // namespace kvm
