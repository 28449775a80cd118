#include "tools/cli/memory_limits.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace kvm {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr MemoryBounds kMachine = {16000 * kMiB, 9000 * kMiB};

// A system's files under a folder of the test.
class MemoryLimitsTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  // A second version as systemd and containers with it have.
  void MakeSecond(const std::string& group) const {
    Write("/proc/self/cgroup", "0::" + group + "\n");
    Write("/proc/self/mountinfo",
          "25 30 0:22 / /proc rw - proc proc rw\n"
          "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw\n");
  }

  MemoryBounds Get() const { return ProcessMemory(kMachine, root_); }

  const std::string root_ = ::testing::TempDir() + "/memory_limits";
};

TEST_F(MemoryLimitsTest, NothingLimitsWhatSaysNothing) {
  EXPECT_EQ(Get().total, kMachine.total);
  EXPECT_EQ(Get().available, kMachine.available);
  MakeSecond("/");
  EXPECT_EQ(Get().available, kMachine.available);
  Write("/sys/fs/cgroup/memory.max", "max\n");
  Write("/sys/fs/cgroup/memory.current", "5000\n");
  EXPECT_EQ(Get().available, kMachine.available);
}

// In its container a process sees its own group as the root.
TEST_F(MemoryLimitsTest, SecondVersionInAContainer) {
  MakeSecond("/");
  Write("/sys/fs/cgroup/memory.max", std::to_string(200 * kMiB) + "\n");
  Write("/sys/fs/cgroup/memory.high", "max\n");
  Write("/sys/fs/cgroup/memory.current", std::to_string(150 * kMiB) + "\n");
  EXPECT_EQ(Get().total, 200 * kMiB);
  EXPECT_EQ(Get().available, 50 * kMiB);
  // Cached files are as good as free.
  Write("/sys/fs/cgroup/memory.stat",
        "anon 1000\nfile 99999999\ninactive_file 1048576\nactive_file 2097152\n"
        "slab_reclaimable 1048576\nslab 99999999\n");
  EXPECT_EQ(Get().available, 54 * kMiB);
  Write("/sys/fs/cgroup/memory.high", std::to_string(160 * kMiB) + "\n");
  EXPECT_EQ(Get().available, 14 * kMiB);
  // Usage may be beyond a limit that was lowered.
  Write("/sys/fs/cgroup/memory.high", std::to_string(100 * kMiB) + "\n");
  EXPECT_EQ(Get().available, 0);
}

TEST_F(MemoryLimitsTest, GroupsAroundTheProcesssOwnCount) {
  MakeSecond("/user.slice/job.scope");
  Write("/sys/fs/cgroup/user.slice/job.scope/memory.max", "max\n");
  Write("/sys/fs/cgroup/user.slice/memory.max", std::to_string(700 * kMiB) + "\n");
  Write("/sys/fs/cgroup/user.slice/memory.current", std::to_string(100 * kMiB) + "\n");
  EXPECT_EQ(Get().total, 700 * kMiB);
  EXPECT_EQ(Get().available, 600 * kMiB);
}

TEST_F(MemoryLimitsTest, FirstVersion) {
  Write("/proc/self/cgroup", "5:cpu,cpuacct:/other\n4:memory,hugetlb:/docker/a1:b\n0::/\n");
  Write("/proc/self/mountinfo",
        "34 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory,hugetlb\n");
  // What it says for none.
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(Get().available, kMachine.available);
  Write("/sys/fs/cgroup/memory/docker/a1:b/memory.limit_in_bytes", std::to_string(300 * kMiB) + "\n");
  Write("/sys/fs/cgroup/memory/docker/a1:b/memory.usage_in_bytes", std::to_string(250 * kMiB) + "\n");
  Write("/sys/fs/cgroup/memory/docker/a1:b/memory.stat", "inactive_file 5\ntotal_inactive_file 1048576\n");
  EXPECT_EQ(Get().total, 300 * kMiB);
  EXPECT_EQ(Get().available, 51 * kMiB);
}

// Containers without a namespace of their own name a group that they see as the mount's root.
TEST_F(MemoryLimitsTest, AMountMayShowAPartOfTheHierarchy) {
  Write("/proc/self/cgroup", "4:memory:/docker/abc\n");
  Write("/proc/self/mountinfo", "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(300 * kMiB));
  EXPECT_EQ(Get().available, 300 * kMiB);
  Write("/proc/self/cgroup", "4:memory:/../elsewhere\n");
  EXPECT_EQ(Get().available, 300 * kMiB);
}

TEST_F(MemoryLimitsTest, AddressSpaceIsALimit) {
  Write("/proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max open files            1024                 4096                 files     \n"
        "Max address space         8388608000           unlimited            bytes     \n");
  Write("/proc/self/statm", std::to_string(1000 * kMiB / sysconf(_SC_PAGE_SIZE)) + " 1 1 1 0 1 0\n");
  const MemoryBounds bounds = Get();
  EXPECT_EQ(bounds.total, 8000 * kMiB);
  EXPECT_EQ(bounds.available, 7000 * kMiB);
}

TEST_F(MemoryLimitsTest, AMachineThatSaysNothingIsBoundAllTheSame) {
  MakeSecond("/");
  Write("/sys/fs/cgroup/memory.max", std::to_string(200 * kMiB));
  EXPECT_EQ(ProcessMemory({}, root_).available, 200 * kMiB);
  EXPECT_EQ(MachineMemory(root_).total, 0);
  Write("/proc/meminfo", "MemTotal:  2048 kB\nMemAvailable:  1024 kB\n");
  EXPECT_EQ(MachineMemory(root_).total, 2 * kMiB);
  EXPECT_EQ(MachineMemory(root_).available, kMiB);
}

TEST(ParseMeminfo, FindsItsLine) {
  EXPECT_EQ(ParseMeminfo("MemTotal:  9 kB\nMemFree:  1 kB\nMemAvailable:      12 kB\nBuffers: 3 kB\n", "MemAvailable:"),
            12288);
  EXPECT_EQ(ParseMeminfo("MemAvailable:\t0 kB", "MemAvailable:"), 0);
  for (const char* other : {"", "MemTotal: 9 kB\n", "MemAvailable: x kB", "MemAvailable: -1 kB", "MemAvailable: 12 MB",
                            "MemAvailable: 9223372036854775807 kB"}) {
    EXPECT_EQ(ParseMeminfo(other, "MemAvailable:"), -1) << other;
  }
}

}  // namespace
}  // namespace kvm
