#ifndef KVM_BASE_FILE_FAILING_FILE_OPERATIONS_H_
#define KVM_BASE_FILE_FAILING_FILE_OPERATIONS_H_

#include <cstddef>
#include <limits>
#include <string>

#include "kvm/base/file/file_operations.h"

namespace kvm {

// Fails one call and does all others. A test lets call 0, 1, 2, ... fail in turn until a run has fewer calls.
class FailingFileOperations : public FileOperations {
 public:
  // Call number `fail_at` of all, counted from 0, fails with `error`. A write takes at most `max_write` bytes.
  FailingFileOperations(int fail_at, int error, size_t max_write = std::numeric_limits<size_t>::max())
      : fail_at_(fail_at), error_(error), max_write_(max_write) {}

  // The call that failed, such as "Sync"; empty when there were too few calls.
  const std::string& failed() const { return failed_; }

  int Open(const char* path, int flags, mode_t mode) override;
  int Chmod(int fd, mode_t mode) override;
  ssize_t Write(int fd, const void* data, size_t size) override;
  int Sync(int fd) override;
  // Closes even where it fails, as Linux does.
  int Close(int fd) override;
  int Rename(const char* from, const char* to) override;

 private:
  // Counts a call; whether it fails, errno set.
  bool Fails(const char* call);

  int fail_at_;
  int error_;
  size_t max_write_;
  int calls_ = 0;
  std::string failed_;
};

}  // namespace kvm

#endif  // KVM_BASE_FILE_FAILING_FILE_OPERATIONS_H_
