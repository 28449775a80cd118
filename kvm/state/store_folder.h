#ifndef KVM_STATE_STORE_FOLDER_H_
#define KVM_STATE_STORE_FOLDER_H_

// The folder of a StateStore: FOLDER/lock, FOLDER/sessions/NAME.kvmstate, FOLDER/snapshots/POSITION-HASH.kvmstate.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace kvm {

// Names are 1 to 100 letters, digits, '.', '_' and '-', and do not begin with '.'. InvalidArgument says what is wrong.
absl::Status CheckSessionName(absl::string_view name);

// Thread-compatible.
class StoreFolder {
 public:
  // Makes the folder if need be, locks it until this object goes, and removes what killed processes left in it.
  // FailedPrecondition naming the process that holds the lock; otherwise what the system says, naming the path.
  static absl::StatusOr<StoreFolder> Open(const std::string& folder);

  StoreFolder(StoreFolder&& other) noexcept { *this = std::move(other); }
  StoreFolder& operator=(StoreFolder&& other) noexcept;
  ~StoreFolder();

  std::string SessionPath(absl::string_view name) const;
  std::string SnapshotPath(int64_t position, uint64_t hash) const;

  // A snapshot file that is there.
  struct File {
    std::string path;
    std::string session;  // name; empty for a snapshot without one
    int64_t bytes = 0;
    absl::Time written;
  };
  // All of them, by path. Other files are passed over, but for those in sessions/ whose names are none, which are in
  // `odd`, and those that MoveAside() has moved, which are in `damaged` under the name they had.
  struct Contents {
    std::vector<File> files;
    std::vector<File> damaged;
    std::vector<std::string> odd;
  };
  absl::StatusOr<Contents> List() const;

 private:
  StoreFolder() = default;

  std::string folder_;
  int lock_ = -1;
};

// Gives a damaged file a name that no snapshot has, path + ".damaged" or with a number behind it, and returns that.
absl::StatusOr<std::string> MoveAside(const std::string& path);

// Removes a file. One that is not there is no error.
absl::Status RemoveFile(const std::string& path);

}  // namespace kvm

#endif  // KVM_STATE_STORE_FOLDER_H_
