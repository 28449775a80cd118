// A process that is killed while it saves leaves the last session or the one before, never neither.
// KVM_CRASH_TEST_KILLS sets how often.

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <random>
#include <string>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/state/snapshot/snapshot.h"
#include "kvm/state/snapshot/snapshot_testing.h"

namespace kvm {
namespace {

constexpr int kDefaultKills = 50;

// Sessions of different sizes, so that a file that mixes two of them cannot be read.
Session NumberedSession(int number) { return TestSession(number, 100 + number % 7, 20000 + number % 11 * 500); }

[[noreturn]] void SaveForever(const std::string& path, std::atomic<int>& saved) {
  for (int number = saved + 1;; ++number) {
    if (!WriteSnapshot(path, NumberedSession(number), TestIdentity()).ok()) _exit(1);
    saved = number;
  }
}

TEST(SnapshotCrashTest, AKilledWriterLeavesTheLastOrTheNextSession) {
  std::string folder = testing::TempDir() + "/crashXXXXXX";
  ASSERT_NE(mkdtemp(&folder[0]), nullptr);
  const std::string path = folder + "/talk.kvmstate";
  // Shared with the children: the last session whose saving was reported as done.
  void* const memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::atomic<int>& saved = *new (memory) std::atomic<int>(0);
  ASSERT_TRUE(WriteSnapshot(path, NumberedSession(0), TestIdentity()).ok());

  const char* const kills_wanted = std::getenv("KVM_CRASH_TEST_KILLS");
  const int kills = kills_wanted == nullptr ? kDefaultKills : std::atoi(kills_wanted);
  ASSERT_GT(kills, 0);
  std::mt19937 random(1);
  int64_t leftovers = 0;
  int took_effect = 0;
  for (int i = 0; i < kills; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) SaveForever(path, saved);
    usleep(static_cast<useconds_t>(random() % 20000));
    kill(child, SIGKILL);
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child could not save";

    const absl::StatusOr<Session> session = ReadSnapshot(path, TestIdentity(), FreshSequence());
    ASSERT_TRUE(session.ok()) << session.status() << ", after kill " << i;
    const int number = session->tokens[0];
    ASSERT_TRUE(number == saved || number == saved + 1) << number << " after " << saved;
    ASSERT_TRUE(AreEqual(*session, NumberedSession(number)));
    took_effect += number == saved + 1;
    saved = number;
    const absl::StatusOr<int64_t> removed = RemoveLeftovers(folder);
    ASSERT_TRUE(removed.ok()) << removed.status();
    leftovers += *removed;
    ASSERT_EQ(std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()), 1);
  }
  std::printf("%d kills: %d sessions saved, %d files cut short and removed, %d saved but not yet reported\n", kills,
              static_cast<int>(saved), static_cast<int>(leftovers), took_effect);
  EXPECT_GT(leftovers, 0) << "no child was killed while it wrote";
  EXPECT_GT(saved, 0) << "no child saved anything";
  munmap(memory, 4096);
}

}  // namespace
}  // namespace kvm
