#ifndef KVM_TOOLS_STORE_FILES_H_
#define KVM_TOOLS_STORE_FILES_H_

// A state store's folder as files, for what needs no model.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvm/state/store_folder.h"

namespace kvm {

// Takes the lock of a folder that is a store already. NotFound when it is none; errors as StoreFolder::Open.
absl::StatusOr<StoreFolder> OpenStoreFolder(const std::string& path);

// The file of a session: InvalidArgument for what is no name; NotFound, with the nearest name, or saying that there is
// but a damaged one.
absl::StatusOr<std::string> FindSessionFile(const StoreFolder& folder, const std::string& name);

// The same with the damaged files of that name that were set aside, at least one file. Errors as FindSessionFile.
absl::StatusOr<std::vector<std::string>> FindAllSessionFiles(const StoreFolder& folder, const std::string& name);

// Says of one of StoreFolder::Contents::damaged what it is and how to be rid of it.
std::string DescribeDamaged(const StoreFolder::File& file);

// Where the file of a new session goes: InvalidArgument for what is no name; AlreadyExists.
absl::StatusOr<std::string> NewSessionFile(const StoreFolder& folder, const std::string& name);

// Checks every byte of a snapshot and writes a copy, whole or not at all. Errors as CheckSnapshot and AtomicFile.
absl::Status CopySnapshot(const std::string& from, const std::string& to);

}  // namespace kvm

#endif  // KVM_TOOLS_STORE_FILES_H_
