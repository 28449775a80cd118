#ifndef KVM_BASE_FILE_MAPPED_FILE_H_
#define KVM_BASE_FILE_MAPPED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace kvm {

// A whole file mapped read-only for as long as this object lives. Thread-safe. The file must not shrink meanwhile
// (replacing it by rename is fine): the system ends a process that reads pages which are gone.
class MappedFile {
 public:
  // NotFound when there is no such file; FailedPrecondition when it is no regular file or cannot be read. Messages name
  // `path`.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  absl::Span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile() = default;

  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// More than any spec, config, index or tokenizer has.
inline constexpr size_t kMaxTextFileBytes = size_t{64} << 20;

// Reads a whole file of at most `max_bytes`. Errors as MappedFile::Open; InvalidArgument for a larger one.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes = kMaxTextFileBytes);

// Reads a file of any size, or a pipe or device to its end. `cancelled` is asked at least twenty times a second, also
// while a pipe, its writer or a device is waited for: true ends that with Cancelled.
absl::StatusOr<std::string> ReadFileOrPipe(const std::string& path, absl::FunctionRef<bool()> cancelled);

// Reads an open file or pipe to its end, likewise; `name` is what messages call it.
absl::StatusOr<std::string> ReadDescriptor(int fd, const std::string& name, absl::FunctionRef<bool()> cancelled);

}  // namespace kvm

#endif  // KVM_BASE_FILE_MAPPED_FILE_H_
