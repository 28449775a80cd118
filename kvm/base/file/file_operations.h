#ifndef KVM_BASE_FILE_FILE_OPERATIONS_H_
#define KVM_BASE_FILE_FILE_OPERATIONS_H_

#include <sys/types.h>

#include <cstddef>

namespace kvm {

// What a writer of files asks of the system: a seam for tests that let it fail. Each does what the system call of its
// name does (Chmod: fchmod, Sync: fsync), −1 and errno included.
class FileOperations {
 public:
  virtual ~FileOperations() = default;

  virtual int Open(const char* path, int flags, mode_t mode);
  virtual int Chmod(int fd, mode_t mode);
  virtual ssize_t Write(int fd, const void* data, size_t size);
  virtual int Sync(int fd);
  virtual int Close(int fd);
  virtual int Rename(const char* from, const char* to);
};

}  // namespace kvm

#endif  // KVM_BASE_FILE_FILE_OPERATIONS_H_
