#ifndef KVM_BASE_FILE_ATOMIC_FILE_H_
#define KVM_BASE_FILE_ATOMIC_FILE_H_

// Files that appear whole or not at all.
//
//   ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create("model.safetensors"));
//   RETURN_IF_ERROR(file.Append(bytes));
//   RETURN_IF_ERROR(file.Commit());   // without it the destructor removes what was written

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvm/base/file/file_operations.h"

namespace kvm {

// The file that writing to `path` makes or replaces: `path` itself, or where its symbolic links lead, whether or not
// there is a file yet. FailedPrecondition for links that go in a circle or to something other than a file, and for
// whatever else is no file. Messages name `path`.
absl::StatusOr<std::string> ResolveOutputPath(const std::string& path);

class AtomicFile {
 public:
  // Opens a temporary file beside the file that ResolveOutputPath finds: links stay, and what they lead to is replaced.
  // A file that is replaced hands its permissions on, and its owner and group as far as they may be given away; where
  // the group may not, the new one gets no rights by it. NotFound when the folder does not exist, PermissionDenied or
  // FailedPrecondition when it cannot be written, PermissionDenied also for a file that may not be written (one without
  // any write permission not even by root), and the errors of ResolveOutputPath. Messages name `path`. Tests pass
  // `operations` that fail.
  static absl::StatusOr<AtomicFile> Create(
      const std::string& path, std::shared_ptr<FileOperations> operations = std::make_shared<FileOperations>());

  AtomicFile(AtomicFile&& other) noexcept { *this = std::move(other); }
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  ~AtomicFile();

  // Writes everything or returns an error that names the path (a full disk is ResourceExhausted). After an error
  // nothing is left of the file and nothing more can be written.
  absl::Status Append(absl::string_view bytes);

  // Flushes to disk and gives the file its name, replacing what was there. After an error the old contents are there,
  // whole, or, when only the folder could not be flushed, the new ones.
  absl::Status Commit();

 private:
  AtomicFile() = default;

  void Discard();
  absl::Status Fail(int error);
  absl::Status AlreadyClosed() const;

  std::shared_ptr<FileOperations> operations_;
  std::string path_;       // in messages
  std::string target_;     // that gets the name: path_ or where its links lead
  std::string temporary_;  // empty once there is none
  int fd_ = -1;
};

// Create, Append, Commit in one.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view bytes);

// Removes what processes that were killed have left of their AtomicFiles in a folder, and returns how many files these
// were. Temporary files of living processes stay, and so does everything that is not named as one of ours. NotFound or
// PermissionDenied, naming `folder`, when it cannot be read; what cannot be removed is left.
absl::StatusOr<int64_t> RemoveLeftovers(const std::string& folder);

}  // namespace kvm

#endif  // KVM_BASE_FILE_ATOMIC_FILE_H_
