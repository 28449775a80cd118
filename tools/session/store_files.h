#ifndef KVM_TOOLS_SESSION_STORE_FILES_H_
#define KVM_TOOLS_SESSION_STORE_FILES_H_

// A state store's folder as files, for what needs no model.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvm/state/store/store_folder.h"

namespace kvm {

// Takes the lock of a folder that is a store already. NotFound when it is none; errors as StoreFolder::Open.
absl::StatusOr<StoreFolder> OpenStoreFolder(const std::string& path);

// The file of a session: InvalidArgument for what is no name; NotFound, with the nearest name, or saying that there is
// but a damaged one; FailedPrecondition when what has the name is no file.
absl::StatusOr<std::string> FindSessionFile(const StoreFolder& folder, const std::string& name);

// The same with the damaged files of that name that were set aside, and with what has the name and is neither file nor
// folder: at least one path. Errors as FindSessionFile.
absl::StatusOr<std::vector<std::string>> FindAllSessionFiles(const StoreFolder& folder, const std::string& name);

// Says of one of StoreFolder::Contents::damaged what it is and how to be rid of it.
std::string DescribeDamaged(const StoreFolder::File& file);

// The same of one of StoreFolder::Contents::odd.
std::string DescribeOdd(const StoreFolder::Odd& odd);

// Where the file of a new session goes: InvalidArgument for what is no name; AlreadyExists; the errors of AtomicFile
// where it could not be written.
absl::StatusOr<std::string> NewSessionFile(const StoreFolder& folder, const std::string& name);

// Checks every byte of a snapshot and writes a copy, whole or not at all. Errors as CheckSnapshot and AtomicFile.
absl::Status CopySnapshot(const std::string& from, const std::string& to);

}  // namespace kvm

#endif  // KVM_TOOLS_SESSION_STORE_FILES_H_
