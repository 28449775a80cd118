#include "kvm/base/file/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kvm/base/status_macros.h"

namespace kvm {
namespace {

// Names left behind by a process that was killed are stepped over, up to this many.
constexpr int kMaxTemporaries = 1000;

// Between the name of a file and the process that writes it.
constexpr char kInfix[] = ".tmp.";

// As many links as Linux follows.
constexpr int kMaxLinks = 40;

absl::Status CannotWrite(const std::string& path, int error) {
  return absl::ErrnoToStatus(error, absl::StrCat("cannot write ", path));
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

int SyncFile(int fd, FileOperations& operations) {
  int synced;
  do {
    synced = operations.Sync(fd);
  } while (synced != 0 && errno == EINTR);
  return synced;
}

// The new name is safe from a power cut only once the folder is on disk too.
absl::Status SyncFolder(const std::string& path, FileOperations& operations) {
  const int fd = operations.Open(FolderOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (fd < 0) return CannotWrite(path, errno);
  const int error = SyncFile(fd, operations) == 0 ? 0 : errno;
  close(fd);
  // File systems that cannot sync a folder say EINVAL.
  return error == 0 || error == EINVAL ? absl::OkStatus() : CannotWrite(path, error);
}

absl::Status NotAFile(const std::string& path) {
  return absl::FailedPreconditionError(absl::StrCat("cannot write ", path, ": not a regular file"));
}

// Whether a file may be replaced: as if it were written to.
absl::Status CheckMayBeWritten(const struct stat& file, const std::string& target, const std::string& path) {
  const bool nobody_may = (file.st_mode & (S_IWUSR | S_IWGRP | S_IWOTH)) == 0;
  if (!nobody_may && faccessat(AT_FDCWD, target.c_str(), W_OK, AT_EACCESS) == 0) return absl::OkStatus();
  if (!nobody_may && errno != EACCES) return CannotWrite(path, errno);
  return absl::PermissionDeniedError(
      absl::StrCat("cannot write ", path, ": the file that is there has no write permission"));
}

// The permissions that a new file may have in place of an old one. It also gets its owner and group, if it can.
mode_t TakeOwnership(int fd, const struct stat& old) {
  const mode_t mode = old.st_mode & (S_IRWXU | S_IRWXG | S_IRWXO);
  struct stat now;
  if (fstat(fd, &now) == 0 && now.st_uid == old.st_uid && now.st_gid == old.st_gid) return mode;
  if (fchown(fd, old.st_uid, old.st_gid) == 0 || fchown(fd, static_cast<uid_t>(-1), old.st_gid) == 0) return mode;
  // What the old group could do is nothing for another one.
  return now.st_gid == old.st_gid ? mode : mode & ~static_cast<mode_t>(S_IRWXG);
}

// Where a symbolic link leads.
absl::StatusOr<std::string> ReadLink(const std::string& link, const std::string& path) {
  std::string target(PATH_MAX, '\0');
  const ssize_t size = readlink(link.c_str(), &target[0], target.size());
  if (size < 0) return CannotWrite(path, errno);
  target.resize(static_cast<size_t>(size));
  return target.empty() || target[0] == '/' ? target : absl::StrCat(FolderOf(link), "/", target);
}

// Whether `text` is a number from `min` to `max` as StrCat writes it.
bool ParseNumber(absl::string_view text, int min, int max, int* number) {
  return absl::SimpleAtoi(text, number) && *number >= min && *number <= max && absl::StrCat(*number) == text;
}

// Whether a file name is that of a temporary, and if so of which process.
bool IsTemporary(absl::string_view name, int* process) {
  const size_t infix = name.rfind(kInfix);
  if (infix == absl::string_view::npos || infix == 0) return false;
  const std::vector<absl::string_view> numbers = absl::StrSplit(name.substr(infix + sizeof(kInfix) - 1), '.');
  int number;
  return numbers.size() == 2 && ParseNumber(numbers[0], 1, std::numeric_limits<int>::max(), process) &&
         ParseNumber(numbers[1], 0, kMaxTemporaries - 1, &number);
}

// Whether a process writes the file: the process is there, or, for one that this system does not show (in another
// container, say), its lock is.
bool IsBeingWritten(const std::string& path, int process) {
  if (kill(process, 0) == 0 || errno != ESRCH) return true;
  const int fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return true;
  const bool locked = flock(fd, LOCK_EX | LOCK_NB) != 0;
  close(fd);
  return locked;
}

}  // namespace

absl::StatusOr<std::string> ResolveOutputPath(const std::string& path) {
  struct stat whole;
  const bool exists = stat(path.c_str(), &whole) == 0;
  // A device or pipe must not be replaced by a file.
  if (exists && !S_ISREG(whole.st_mode)) return NotAFile(path);
  std::string target = path;
  for (int links = 0; links <= kMaxLinks; ++links) {
    if (target.empty() || target.back() == '/') {
      return absl::FailedPreconditionError(absl::StrCat("cannot write \"", path, "\": not a file name"));
    }
    struct stat info;
    const bool found = lstat(target.c_str(), &info) == 0;
    if (found && S_ISLNK(info.st_mode)) {
      ASSIGN_OR_RETURN(target, ReadLink(target, path));
      continue;
    }
    // Links of the system to open files may lead to where no such file is.
    const bool same = found && exists && info.st_dev == whole.st_dev && info.st_ino == whole.st_ino;
    if (exists != found || (exists && !same)) return NotAFile(path);
    return target;
  }
  return CannotWrite(path, ELOOP);
}

absl::StatusOr<AtomicFile> AtomicFile::Create(const std::string& path, std::shared_ptr<FileOperations> operations) {
  AtomicFile file;
  file.operations_ = std::move(operations);
  ASSIGN_OR_RETURN(file.target_, ResolveOutputPath(path));
  file.path_ = path;
  struct stat old;
  const bool replaces = stat(file.target_.c_str(), &old) == 0;
  if (replaces) RETURN_IF_ERROR(CheckMayBeWritten(old, file.target_, path));
  // Nobody else reads it before it has the permissions of the one before.
  const mode_t mode = replaces ? S_IRUSR | S_IWUSR : 0666;
  for (int i = 0; i < kMaxTemporaries && file.fd_ < 0; ++i) {
    const std::string temporary = absl::StrCat(file.target_, kInfix, getpid(), ".", i);
    file.fd_ = file.operations_->Open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (file.fd_ >= 0) {
      // For RemoveLeftovers. File systems without locks have the process's number alone.
      static_cast<void>(flock(file.fd_, LOCK_EX | LOCK_NB));
      file.temporary_ = temporary;
    } else if (errno != EEXIST) {
      return CannotWrite(path, errno);
    }
  }
  if (file.fd_ < 0) return CannotWrite(path, EEXIST);
  if (replaces && file.operations_->Chmod(file.fd_, TakeOwnership(file.fd_, old)) != 0) return file.Fail(errno);
  return file;
}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  std::swap(operations_, other.operations_);
  std::swap(path_, other.path_);
  std::swap(target_, other.target_);
  std::swap(temporary_, other.temporary_);
  std::swap(fd_, other.fd_);
  return *this;
}

AtomicFile::~AtomicFile() { Discard(); }

void AtomicFile::Discard() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
  fd_ = -1;
  temporary_.clear();
}

absl::Status AtomicFile::Append(absl::string_view bytes) {
  if (fd_ < 0) return AlreadyClosed();
  while (!bytes.empty()) {
    const ssize_t count = operations_->Write(fd_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Fail(count < 0 ? errno : EIO);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  if (fd_ < 0) return AlreadyClosed();
  if (SyncFile(fd_, *operations_) != 0) return Fail(errno);
  if (operations_->Close(std::exchange(fd_, -1)) != 0) return Fail(errno);
  if (operations_->Rename(temporary_.c_str(), target_.c_str()) != 0) return Fail(errno);
  temporary_.clear();
  return SyncFolder(target_, *operations_);
}

absl::Status AtomicFile::Fail(int error) {
  Discard();
  return CannotWrite(path_, error);
}

absl::Status AtomicFile::AlreadyClosed() const {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot write ", path_, ": the file was committed, or an earlier write failed"));
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view bytes) {
  ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  RETURN_IF_ERROR(file.Append(bytes));
  return file.Commit();
}

absl::StatusOr<int64_t> RemoveLeftovers(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  int64_t removed = 0;
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    int process;
    std::error_code ignored;
    if (!IsTemporary(entry->path().filename().string(), &process)) continue;
    if (entry->symlink_status(ignored).type() != fs::file_type::regular) continue;
    const std::string path = entry->path().string();
    if (!IsBeingWritten(path, process) && unlink(path.c_str()) == 0) ++removed;
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot read ", folder));
  return removed;
}

}  // namespace kvm
