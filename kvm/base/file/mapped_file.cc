#include "kvm/base/file/mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kvm/base/file/path_check.h"
#include "kvm/base/status_macros.h"

namespace kvm {
namespace {

absl::Status CannotRead(const std::string& path, int error) {
  const std::string message = absl::StrCat("cannot read ", path, ": ", DescribePathError(path, error));
  const bool is_absent = error == ENOENT && !NameExists(path);
  return is_absent ? absl::NotFoundError(message) : absl::FailedPreconditionError(message);
}

absl::Status Interrupted(const std::string& path) {
  return absl::CancelledError(absl::StrCat("reading ", path, " was interrupted"));
}

// Closes on the way out.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

struct OpenFile {
  FileDescriptor fd;
  struct stat info;
};

// Without O_NONBLOCK, opening a named pipe would wait for a writer.
absl::StatusOr<OpenFile> OpenForReading(const std::string& path) {
  FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info;
  if (fd.get() < 0 || fstat(fd.get(), &info) != 0) return CannotRead(path, errno);
  if (S_ISDIR(info.st_mode)) return CannotRead(path, EISDIR);
  return OpenFile{std::move(fd), info};
}

absl::StatusOr<OpenFile> OpenRegular(const std::string& path) {
  ASSIGN_OR_RETURN(OpenFile opened, OpenForReading(path));
  if (S_ISREG(opened.info.st_mode)) return opened;
  return absl::FailedPreconditionError(absl::StrCat("cannot read ", path, ": not a regular file"));
}

absl::Status TooLarge(const std::string& path, absl::string_view size, size_t max_bytes) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": has ", size, " bytes; expected a text file of at most ", max_bytes));
}

// Waits until there is something to read, an end or an error. A signal that comes just before a wait begins does not
// end it, so that no wait is long and `cancelled` is asked after each.
absl::Status AwaitInput(int fd, const std::string& name, absl::FunctionRef<bool()> cancelled) {
  constexpr int kLongestWaitMs = 50;
  while (true) {
    pollfd waiting = {fd, POLLIN, 0};
    const int ready = poll(&waiting, 1, kLongestWaitMs);
    if (ready < 0 && errno != EINTR) return CannotRead(name, errno);
    if (cancelled()) return Interrupted(name);
    if (ready > 0) return absl::OkStatus();
  }
}

absl::StatusOr<std::string> ReadToEnd(int fd, const std::string& name, size_t max_bytes,
                                      absl::FunctionRef<bool()> cancelled) {
  std::string contents;
  char buffer[1 << 16];
  while (true) {
    RETURN_IF_ERROR(AwaitInput(fd, name, cancelled));
    const ssize_t count = read(fd, buffer, sizeof(buffer));
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count < 0) return CannotRead(name, errno);
    if (count == 0) return contents;
    // Files of the system have no size before they are read.
    if (static_cast<size_t>(count) > max_bytes - contents.size()) return TooLarge(name, "more", max_bytes);
    contents.append(buffer, static_cast<size_t>(count));
  }
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(OpenFile opened, OpenRegular(path));
  MappedFile file;
  file.path_ = path;
  const size_t size = static_cast<size_t>(opened.info.st_size);
  if (size > 0) {  // mmap refuses empty mappings
    void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, opened.fd.get(), 0);
    if (data == MAP_FAILED) return CannotRead(path, errno);
    file.data_ = static_cast<const uint8_t*>(data);
    file.size_ = size;
  }
  return file;
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
}

absl::StatusOr<std::string> ReadDescriptor(int fd, const std::string& name, absl::FunctionRef<bool()> cancelled) {
  return ReadToEnd(fd, name, std::numeric_limits<size_t>::max(), cancelled);
}

absl::StatusOr<std::string> ReadFileOrPipe(const std::string& path, absl::FunctionRef<bool()> cancelled) {
  ASSIGN_OR_RETURN(OpenFile opened, OpenForReading(path));
  return ReadDescriptor(opened.fd.get(), path, cancelled);
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  const auto never = [] { return false; };
  ASSIGN_OR_RETURN(OpenFile opened, OpenRegular(path));
  const uint64_t size = static_cast<uint64_t>(opened.info.st_size);
  if (size > max_bytes) return TooLarge(path, absl::StrCat(size), max_bytes);
  return ReadToEnd(opened.fd.get(), path, max_bytes, never);
}

}  // namespace kvm
