#ifndef KVM_STATE_STORE_STORE_FOLDER_H_
#define KVM_STATE_STORE_STORE_FOLDER_H_

// The folder of a StateStore: FOLDER/lock, FOLDER/pins, FOLDER/sessions/NAME.kvmstate and
// FOLDER/snapshots/POSITION-HASH.kvmstate (docs/formats/store_folder.md). What has one of these names and is something
// else is left alone.

#include <cstdint>
#include <set>
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
  // FailedPrecondition naming the process that holds the lock, and for a lock file that is none: a link, not a regular
  // file, or one with something else than a number in it. Otherwise what the system says, naming the path.
  static absl::StatusOr<StoreFolder> Open(const std::string& folder);

  StoreFolder(StoreFolder&& other) noexcept { *this = std::move(other); }
  StoreFolder& operator=(StoreFolder&& other) noexcept;
  // What Open made goes again if nothing was put into it.
  ~StoreFolder();

  std::string SessionPath(absl::string_view name) const;
  std::string SnapshotPath(int64_t position, uint64_t hash) const;
  std::string PinsPath() const;

  // A snapshot file that is there.
  struct File {
    std::string path;
    std::string session;  // name; empty for a snapshot without one
    int64_t bytes = 0;
    absl::Time written;
  };
  // What is no snapshot file and has the name of one, or what is in sessions/ and has no session's name.
  struct Odd {
    std::string path;
    std::string session;  // that it stands in the way of; else empty
    std::string why;      // a message that begins with the path
    bool is_folder = false;
    bool in_snapshots = false;
  };
  // All of them, by path. Links to files count as these. Other files are passed over, but for odd ones, and for those
  // that MoveAside() has moved, which are in `damaged` under the name they had.
  struct Contents {
    std::vector<File> files;
    std::vector<File> damaged;
    std::vector<Odd> odd;
  };
  absl::StatusOr<Contents> List() const;

  // The names of the pinned sessions, whether these are there or not. FailedPrecondition for a file of that name that
  // is not ours; what the system says, naming the path.
  absl::StatusOr<std::set<std::string>> ReadPins() const;
  // Replaces them. Errors as ReadPins and AtomicFile.
  absl::Status WritePins(const std::set<std::string>& names) const;

 private:
  StoreFolder() = default;

  // OK when this object has the lock; Aborted when the folder went meanwhile, as one that was not used does.
  absl::Status MakeAndLock();
  absl::Status TakeLock();
  void RemoveUnused();

  std::string folder_;
  int lock_ = -1;
  std::vector<std::string> made_;  // folders, outermost first, and the lock file
};

// Gives a damaged file a name that no snapshot has, path + ".damaged" or with a number behind it, and returns that.
absl::StatusOr<std::string> MoveAside(const std::string& path);

// Whether a file in snapshots/ has a name that SnapshotPath() gives.
bool IsSnapshotName(const std::string& path);

// Says that a file is used now, in its time of writing. Should that fail, it stays what it was.
void TouchFile(const std::string& path);

// Removes a file. One that is not there is no error.
absl::Status RemoveFile(const std::string& path);

}  // namespace kvm

#endif  // KVM_STATE_STORE_STORE_FOLDER_H_
