#include "kvm/state/store_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "kvm/io/atomic_file.h"
#include "kvm/status_macros.h"

namespace kvm {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestName = 100;
constexpr absl::string_view kExtension = ".kvmstate";
constexpr absl::string_view kAside = ".damaged";
constexpr char kSessions[] = "/sessions";
constexpr char kSnapshots[] = "/snapshots";

absl::Status MakeFolder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  // What is there already may be a file.
  if (!error && !fs::is_directory(folder, error) && !error) error = std::make_error_code(std::errc::not_a_directory);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot make the folder ", folder));
}

// Who wrote their number into the lock file. Whoever has just taken the lock may not have written it yet.
std::string Holder(int fd) {
  char text[32];
  const ssize_t size = pread(fd, text, sizeof(text), 0);
  const absl::string_view pid = absl::StripAsciiWhitespace(absl::string_view(text, size > 0 ? size : 0));
  return pid.empty() ? "another process" : absl::StrCat("process ", pid);
}

// Returns the open lock file.
absl::StatusOr<int> TakeLock(const std::string& folder) {
  const std::string path = folder + "/lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    const std::string holder = Holder(fd);
    close(fd);
    if (error != EWOULDBLOCK) return absl::ErrnoToStatus(error, absl::StrCat("cannot lock ", path));
    return absl::FailedPreconditionError(
        absl::StrCat("the folder ", folder, " is in use by ", holder, ": a state store has its folder to itself"));
  }
  // For people alone: the lock holds without it, as on a full disk.
  const std::string pid = absl::StrCat(getpid(), "\n");
  if (ftruncate(fd, 0) != 0 || pwrite(fd, pid.data(), pid.size(), 0) < 0) return fd;
  return fd;
}

// Takes from `name` what MoveAside() has put behind it; false when that is nothing.
bool ConsumeAside(absl::string_view* name) {
  absl::string_view rest = *name;
  const size_t last = rest.find_last_not_of("0123456789");
  if (last != absl::string_view::npos && last + 1 < rest.size() && rest[last] == '.') rest = rest.substr(0, last);
  if (!absl::ConsumeSuffix(&rest, kAside)) return false;
  *name = rest;
  return true;
}

absl::Status AddFiles(const std::string& folder, bool sessions, StoreFolder::Contents& contents) {
  std::error_code error;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    const std::string path = it->path().string();
    const std::string file_name = it->path().filename().string();
    absl::string_view name = file_name;
    const bool is_aside = ConsumeAside(&name);
    if (!absl::ConsumeSuffix(&name, kExtension)) continue;
    struct stat info;
    if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    if (sessions && !CheckSessionName(name).ok()) {
      if (!is_aside) contents.odd.push_back(path);
      continue;
    }
    std::vector<StoreFolder::File>& files = is_aside ? contents.damaged : contents.files;
    files.push_back({path, sessions ? std::string(name) : "", info.st_size, absl::TimeFromTimespec(info.st_mtim)});
  }
  return error ? absl::ErrnoToStatus(error.value(), absl::StrCat("cannot read the folder ", folder)) : absl::OkStatus();
}

}  // namespace

absl::Status CheckSessionName(absl::string_view name) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("session name \"", name.substr(0, kLongestName), "\": ", why));
  };
  if (name.empty()) return refuse("expected at least one character");
  if (name.size() > kLongestName) {
    return refuse(absl::StrCat(name.size(), " characters, expected at most ", kLongestName));
  }
  if (name[0] == '.') return refuse("expected no '.' at the beginning");
  for (char c : name) {
    if (!absl::ascii_isalnum(c) && c != '.' && c != '_' && c != '-') {
      return refuse("expected letters, digits, '.', '_' and '-'");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<StoreFolder> StoreFolder::Open(const std::string& folder) {
  StoreFolder result;
  result.folder_ = folder;
  RETURN_IF_ERROR(MakeFolder(folder));
  ASSIGN_OR_RETURN(result.lock_, TakeLock(folder));
  for (const char* part : {kSessions, kSnapshots}) {
    RETURN_IF_ERROR(MakeFolder(folder + part));
    RETURN_IF_ERROR(RemoveLeftovers(folder + part).status());
  }
  return result;
}

StoreFolder& StoreFolder::operator=(StoreFolder&& other) noexcept {
  std::swap(folder_, other.folder_);
  std::swap(lock_, other.lock_);
  return *this;
}

// The lock file stays: removing it could take it from under one who has just opened it.
StoreFolder::~StoreFolder() {
  if (lock_ >= 0) close(lock_);
}

std::string StoreFolder::SessionPath(absl::string_view name) const {
  return absl::StrCat(folder_, kSessions, "/", name, kExtension);
}

std::string StoreFolder::SnapshotPath(int64_t position, uint64_t hash) const {
  return absl::StrFormat("%s%s/%d-%016x%s", folder_, kSnapshots, position, hash, kExtension);
}

absl::StatusOr<StoreFolder::Contents> StoreFolder::List() const {
  Contents contents;
  RETURN_IF_ERROR(AddFiles(folder_ + kSessions, /*sessions=*/true, contents));
  RETURN_IF_ERROR(AddFiles(folder_ + kSnapshots, /*sessions=*/false, contents));
  for (std::vector<File>* files : {&contents.files, &contents.damaged}) {
    std::sort(files->begin(), files->end(), [](const File& a, const File& b) { return a.path < b.path; });
  }
  std::sort(contents.odd.begin(), contents.odd.end());
  return contents;
}

absl::StatusOr<std::string> MoveAside(const std::string& path) {
  const std::string first = absl::StrCat(path, kAside);
  std::string aside = first;
  std::error_code error;
  for (int i = 2; fs::exists(fs::symlink_status(aside, error)); ++i) aside = absl::StrCat(first, ".", i);
  if (rename(path.c_str(), aside.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot rename ", path, " to ", aside));
  }
  return aside;
}

absl::Status RemoveFile(const std::string& path) {
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot remove ", path));
}

}  // namespace kvm
