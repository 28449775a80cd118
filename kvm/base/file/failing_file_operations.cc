#include "kvm/base/file/failing_file_operations.h"

#include <errno.h>

#include <algorithm>

namespace kvm {

bool FailingFileOperations::Fails(const char* call) {
  if (calls_++ != fail_at_) return false;
  failed_ = call;
  errno = error_;
  return true;
}

int FailingFileOperations::Open(const char* path, int flags, mode_t mode) {
  return Fails("Open") ? -1 : FileOperations::Open(path, flags, mode);
}

int FailingFileOperations::Chmod(int fd, mode_t mode) { return Fails("Chmod") ? -1 : FileOperations::Chmod(fd, mode); }

ssize_t FailingFileOperations::Write(int fd, const void* data, size_t size) {
  return Fails("Write") ? -1 : FileOperations::Write(fd, data, std::min(size, max_write_));
}

int FailingFileOperations::Sync(int fd) { return Fails("Sync") ? -1 : FileOperations::Sync(fd); }

int FailingFileOperations::Close(int fd) {
  const int closed = FileOperations::Close(fd);
  return Fails("Close") ? -1 : closed;
}

int FailingFileOperations::Rename(const char* from, const char* to) {
  return Fails("Rename") ? -1 : FileOperations::Rename(from, to);
}

}  // namespace kvm
