#include "kvm/base/file/file_operations.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

namespace kvm {

int FileOperations::Open(const char* path, int flags, mode_t mode) { return open(path, flags, mode); }
int FileOperations::Chmod(int fd, mode_t mode) { return fchmod(fd, mode); }
ssize_t FileOperations::Write(int fd, const void* data, size_t size) { return write(fd, data, size); }
int FileOperations::Sync(int fd) { return fsync(fd); }
int FileOperations::Close(int fd) { return close(fd); }
int FileOperations::Rename(const char* from, const char* to) { return rename(from, to); }

}  // namespace kvm
