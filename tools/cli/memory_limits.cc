#include "tools/cli/memory_limits.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace kvm {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A file that holds a number; "max" and whatever else is none gives `otherwise`.
int64_t ReadNumber(const std::string& path, int64_t otherwise) {
  int64_t number = 0;
  return absl::SimpleAtoi(ReadText(path), &number) && number >= 0 ? number : otherwise;
}

// The sum of the lines "name number" of these names.
int64_t SumOfFields(absl::string_view text, std::initializer_list<absl::string_view> names) {
  int64_t sum = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> field = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    int64_t number = 0;
    const bool wanted = std::find(names.begin(), names.end(), field.first) != names.end();
    if (wanted && absl::SimpleAtoi(field.second, &number) && number > 0) sum += number;
  }
  return sum;
}

// The files of one version of control groups.
struct Version {
  bool is_first;
  std::vector<const char*> limits;
  const char* usage;
  std::initializer_list<absl::string_view> droppable;  // fields of memory.stat
};

// Beyond memory.high the system holds processes up until they use less, so that it is a limit, too.
const Version kFirst = {
    true, {"memory.limit_in_bytes"}, "memory.usage_in_bytes", {"total_active_file", "total_inactive_file"}};
const Version kSecond = {
    false, {"memory.max", "memory.high"}, "memory.current", {"active_file", "inactive_file", "slab_reclaimable"}};

bool Lists(absl::string_view comma_separated, absl::string_view word) {
  for (const absl::string_view part : absl::StrSplit(comma_separated, ',')) {
    if (part == word) return true;
  }
  return false;
}

// The group of this process that bounds its memory: its path in the hierarchy, "" for none.
std::string GroupOf(absl::string_view proc_cgroup, bool is_first) {
  for (const absl::string_view line : absl::StrSplit(proc_cgroup, '\n')) {
    // "4:memory:/path" or "0::/path"; a path may hold colons.
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    if (is_first ? Lists(parts[1], "memory") : (parts[0] == "0" && parts[1].empty())) return std::string(parts[2]);
  }
  return "";
}

// Where a hierarchy is mounted, and which of its groups is seen there.
struct Mount {
  std::string point;
  std::string group;
};

std::vector<Mount> MountsOf(absl::string_view mountinfo, bool is_first) {
  std::vector<Mount> mounts;
  for (const absl::string_view line : absl::StrSplit(mountinfo, '\n')) {
    // "35 31 0:32 /group /mount/point rw,relatime shared:1 - cgroup cgroup rw,memory".
    const std::pair<absl::string_view, absl::string_view> sides = absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    const std::vector<absl::string_view> left = absl::StrSplit(sides.first, ' ');
    const std::vector<absl::string_view> right = absl::StrSplit(sides.second, ' ');
    if (left.size() < 5 || right.size() < 3) continue;
    if (is_first ? right[0] == "cgroup" && Lists(right[2], "memory") : right[0] == "cgroup2") {
      mounts.push_back({std::string(left[4]), std::string(left[3])});
    }
  }
  return mounts;
}

// The folders of a group and of those around it, as far as they are seen.
std::vector<std::string> FoldersOf(const Mount& mount, absl::string_view group) {
  if (mount.group != "/" && !absl::ConsumePrefix(&group, mount.group)) group = "";
  std::vector<std::string> folders;
  while (!group.empty() && group != "/" && !absl::StrContains(group, "..")) {
    folders.push_back(absl::StrCat(mount.point, absl::StartsWith(group, "/") ? "" : "/", group));
    group = group.substr(0, group.rfind('/') == absl::string_view::npos ? 0 : group.rfind('/'));
  }
  folders.push_back(mount.point);
  return folders;
}

void Lower(int64_t total, int64_t used, MemoryBounds* bounds) {
  const int64_t left = std::max<int64_t>(total - std::max<int64_t>(used, 0), 0);
  if (bounds->total == 0) *bounds = {total, left};  // the machine does not say
  bounds->total = std::min(bounds->total, total);
  bounds->available = std::min(bounds->available, left);
}

void LowerByGroups(const Version& version, const std::string& root, MemoryBounds* bounds) {
  const std::string group = GroupOf(ReadText(root + "/proc/self/cgroup"), version.is_first);
  if (group.empty()) return;
  for (const Mount& mount : MountsOf(ReadText(root + "/proc/self/mountinfo"), version.is_first)) {
    for (const std::string& folder : FoldersOf(mount, group)) {
      const std::string files = absl::StrCat(root, folder, "/");
      int64_t limit = kNoLimit;
      for (const char* name : version.limits) limit = std::min(limit, ReadNumber(files + name, kNoLimit));
      // The first version has no word for none, but a number that no machine reaches.
      if (limit >= (bounds->total > 0 ? bounds->total : kNoLimit / 2)) continue;
      const int64_t droppable = SumOfFields(ReadText(files + "memory.stat"), version.droppable);
      Lower(limit, ReadNumber(files + version.usage, 0) - droppable, bounds);
    }
  }
}

void LowerByAddressSpace(const std::string& root, MemoryBounds* bounds) {
  // "Max address space         unlimited            unlimited            bytes": what holds, and what may be asked for.
  for (absl::string_view line : absl::StrSplit(ReadText(root + "/proc/self/limits"), '\n')) {
    if (!absl::ConsumePrefix(&line, "Max address space")) continue;
    const std::vector<absl::string_view> limits = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t total = 0;
    if (limits.empty() || !absl::SimpleAtoi(limits[0], &total)) return;
    int64_t pages = 0;
    std::ifstream(root + "/proc/self/statm") >> pages;
    Lower(total, pages * sysconf(_SC_PAGE_SIZE), bounds);
    return;
  }
}

}  // namespace

int64_t ParseMeminfo(absl::string_view meminfo, absl::string_view name) {
  constexpr int64_t kUnit = 1024;
  for (absl::string_view line : absl::StrSplit(meminfo, '\n')) {
    int64_t number = 0;
    if (!absl::ConsumePrefix(&line, name) || !absl::ConsumeSuffix(&line, "kB")) continue;
    if (!absl::SimpleAtoi(line, &number) || number < 0) return -1;
    return number <= kNoLimit / kUnit ? number * kUnit : -1;
  }
  return -1;
}

MemoryBounds MachineMemory(const std::string& root) {
  const std::string meminfo = ReadText(root + "/proc/meminfo");
  MemoryBounds machine;
  machine.total = std::max<int64_t>(ParseMeminfo(meminfo, "MemTotal:"), 0);
  const int64_t available = ParseMeminfo(meminfo, "MemAvailable:");
  machine.available = available >= 0 ? available : machine.total;
  return machine;
}

MemoryBounds ProcessMemory(const MemoryBounds& machine, const std::string& root) {
  MemoryBounds bounds = machine;
  LowerByGroups(kFirst, root, &bounds);
  LowerByGroups(kSecond, root, &bounds);
  LowerByAddressSpace(root, &bounds);
  return bounds;
}

}  // namespace kvm
