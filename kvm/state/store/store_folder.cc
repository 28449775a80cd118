#include "kvm/state/store/store_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/base/file/path_check.h"
#include "kvm/base/status_macros.h"

namespace kvm {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestName = 100;
constexpr absl::string_view kExtension = ".kvmstate";
constexpr absl::string_view kAside = ".damaged";
constexpr char kLock[] = "/lock";
constexpr char kPins[] = "/pins";
constexpr char kSessions[] = "/sessions";
constexpr char kSnapshots[] = "/snapshots";

// So often a folder may go while it is opened: each time another process has made it and not used it.
constexpr int kMaxAttempts = 100;

// More than the number of a process has digits.
constexpr size_t kMaxLockBytes = 32;

// Adds what it makes to `made`, outermost first. Aborted when another process removes it, or what it lies in,
// meanwhile.
absl::Status MakeFolder(const std::string& folder, std::vector<std::string>* made) {
  std::error_code error;
  std::vector<std::string> missing;
  for (fs::path part = folder; !part.empty() && !NameExists(part.string()); part = part.parent_path()) {
    if (part.has_filename()) missing.push_back(part.string());
  }
  made->insert(made->end(), missing.rbegin(), missing.rend());
  fs::create_directories(folder, error);
  // What is there already may be a file.
  if (!error && !fs::is_directory(folder, error) && !error) error = std::make_error_code(std::errc::not_a_directory);
  if (!error) return absl::OkStatus();
  absl::Status status = absl::ErrnoToStatus(error.value(), absl::StrCat("cannot make the folder ", folder));
  const bool went = error == std::errc::no_such_file_or_directory || !NameExists(folder);
  const bool may_come_back = error == std::errc::not_a_directory || error == std::errc::no_such_file_or_directory;
  return went && may_come_back ? absl::AbortedError(status.message()) : status;
}

// What something that is no regular file is.
absl::string_view KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISLNK(mode)) return "a symbolic link";
  return "a device";
}

// Opens a file that only a store has made, without asking anything of whatever else may have its name: no link is
// followed, no pipe waited for. −1 when there is none.
absl::StatusOr<int> OpenOwn(const std::string& path, int flags) {
  struct stat info;
  if (lstat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is ", KindOf(info.st_mode), "; expected the state store's own file, or none"));
  }
  const int fd = open(path.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
  if (fd < 0 && errno == ENOENT) return -1;
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) return fd;
  close(fd);
  return absl::FailedPreconditionError(absl::StrCat(path, " is no file; expected the state store's own, or none"));
}

// What a lock file has to say of its process: a number, or nothing.
absl::StatusOr<std::string> ReadLockFile(int fd, const std::string& path) {
  char text[kMaxLockBytes + 1];
  const ssize_t size = pread(fd, text, sizeof(text), 0);
  if (size < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  const absl::string_view pid = absl::StripAsciiWhitespace(absl::string_view(text, static_cast<size_t>(size)));
  if (static_cast<size_t>(size) <= kMaxLockBytes && std::all_of(pid.begin(), pid.end(), absl::ascii_isdigit)) {
    return std::string(pid);
  }
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is not the lock file of a state store: expected the number of a process, or an empty file"));
}

// Whether the file is still what its name stands for.
bool IsStillThere(int fd, const std::string& path) {
  struct stat opened, named;
  return fstat(fd, &opened) == 0 && lstat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
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
    const bool has_name = !sessions || CheckSessionName(name).ok();
    struct stat info;
    if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
      const bool is_folder = it->is_directory(error);
      if (!is_aside && lstat(path.c_str(), &info) == 0) {
        const std::string why =
            absl::StrCat(path, ": ", KindOf(info.st_mode), S_ISLNK(info.st_mode) ? " that leads to no file" : "",
                         "; expected a file");
        contents.odd.push_back({path, sessions && has_name ? std::string(name) : "", why, is_folder, !sessions});
      }
      continue;
    }
    if (!has_name) {
      if (!is_aside) {
        contents.odd.push_back(
            {path, "", absl::StrCat(path, ": the file's name is not that of a session"), false, false});
      }
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
  absl::Status locked;
  for (int i = 0; i < kMaxAttempts; ++i) {
    locked = result.MakeAndLock();
    if (!absl::IsAborted(locked)) break;
  }
  RETURN_IF_ERROR(locked);
  for (const char* part : {kSessions, kSnapshots}) {
    RETURN_IF_ERROR(MakeFolder(folder + part, &result.made_));
    RETURN_IF_ERROR(RemoveLeftovers(folder + part).status());
  }
  RETURN_IF_ERROR(RemoveLeftovers(folder).status());
  return result;
}

absl::Status StoreFolder::MakeAndLock() {
  RETURN_IF_ERROR(MakeFolder(folder_, &made_));
  return TakeLock();
}

absl::Status StoreFolder::TakeLock() {
  const std::string path = folder_ + kLock;
  ASSIGN_OR_RETURN(int fd, OpenOwn(path, O_RDWR));
  const bool is_new = fd < 0;
  if (is_new) fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  const absl::Status went = absl::AbortedError(absl::StrCat("cannot lock ", path, ": it is removed time and again"));
  if (fd < 0 && (errno == EEXIST || errno == ENOENT)) return went;
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  const auto refuse = [fd](absl::Status why) {
    close(fd);
    return why;
  };
  const absl::StatusOr<std::string> holder = ReadLockFile(fd, path);
  if (!holder.ok()) return refuse(holder.status());
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return refuse(absl::ErrnoToStatus(errno, absl::StrCat("cannot lock ", path)));
    // Whoever has just taken the lock may not have written their number yet.
    return refuse(absl::FailedPreconditionError(
        absl::StrCat("the folder ", folder_, " is in use by ",
                     holder->empty() ? "another process" : absl::StrCat("process ", *holder),
                     ": a state store has its folder to itself")));
  }
  if (!IsStillThere(fd, path)) return refuse(went);
  lock_ = fd;
  if (is_new) made_.push_back(path);
  // For people alone: the lock holds without it, as on a full disk.
  const std::string pid = absl::StrCat(getpid(), "\n");
  if (ftruncate(fd, 0) != 0 || pwrite(fd, pid.data(), pid.size(), 0) < 0) return absl::OkStatus();
  return absl::OkStatus();
}

// Folders that are not empty stay, and with them all that they are in. The lock file goes before its folder; who has
// opened it meanwhile finds that it is no longer there.
void StoreFolder::RemoveUnused() {
  const auto made = [this](absl::string_view path) {
    return std::find(made_.begin(), made_.end(), path) != made_.end();
  };
  // Without these two the store was there before.
  if (lock_ >= 0 && !made(folder_ + kLock)) return;
  for (const char* part : {kSessions, kSnapshots}) {
    const std::string path = folder_ + part;
    std::error_code error;
    if (NameExists(path) && (!made(path) || !fs::is_empty(path, error) || error)) return;
  }
  for (; !made_.empty(); made_.pop_back()) {
    const std::string& path = made_.back();
    if (NameExists(path) && (path == folder_ + kLock ? unlink(path.c_str()) : rmdir(path.c_str())) != 0) return;
  }
}

StoreFolder& StoreFolder::operator=(StoreFolder&& other) noexcept {
  std::swap(folder_, other.folder_);
  std::swap(lock_, other.lock_);
  std::swap(made_, other.made_);
  return *this;
}

StoreFolder::~StoreFolder() {
  RemoveUnused();
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
  std::sort(contents.odd.begin(), contents.odd.end(), [](const Odd& a, const Odd& b) { return a.path < b.path; });
  return contents;
}

std::string StoreFolder::PinsPath() const { return folder_ + kPins; }

absl::StatusOr<std::set<std::string>> StoreFolder::ReadPins() const {
  const std::string path = PinsPath();
  std::set<std::string> names;
  ASSIGN_OR_RETURN(const int fd, OpenOwn(path, O_RDONLY));
  if (fd < 0) return names;
  absl::StatusOr<std::string> text = ReadDescriptor(fd, path, [] { return false; });
  close(fd);
  RETURN_IF_ERROR(text.status());
  for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    const absl::Status is_name = CheckSessionName(line);
    if (!is_name.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, " is not the list of a state store's pinned sessions: ", is_name.message()));
    }
    names.insert(std::string(line));
  }
  return names;
}

absl::Status StoreFolder::WritePins(const std::set<std::string>& names) const {
  RETURN_IF_ERROR(ReadPins().status());
  const std::string path = PinsPath();
  if (names.empty()) return RemoveFile(path);
  return WriteFileAtomically(path, absl::StrCat(absl::StrJoin(names, "\n"), "\n"));
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

bool IsSnapshotName(const std::string& path) {
  std::string name = fs::path(path).filename().string();
  if (name.size() <= kExtension.size()) return false;
  name.resize(name.size() - kExtension.size());
  const std::pair<std::string, std::string> parts = absl::StrSplit(name, absl::MaxSplits('-', 1));
  return !parts.first.empty() && std::all_of(parts.first.begin(), parts.first.end(), absl::ascii_isdigit) &&
         parts.second.size() == 16 && std::all_of(parts.second.begin(), parts.second.end(), absl::ascii_isxdigit);
}

void TouchFile(const std::string& path) { utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW); }

absl::Status RemoveFile(const std::string& path) {
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot remove ", path));
}

}  // namespace kvm
