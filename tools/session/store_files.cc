#include "tools/session/store_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/base/file/path_check.h"
#include "kvm/base/nearest_name.h"
#include "kvm/base/status_macros.h"
#include "kvm/state/snapshot/snapshot.h"

namespace kvm {

absl::StatusOr<StoreFolder> OpenStoreFolder(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path + "/sessions", error)) return StoreFolder::Open(path);
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot look into the state store ", path));
  }
  return absl::NotFoundError(
      absl::StrCat(path, ": no state store; expected a folder that kvm session save or kvm generate --store has made"));
}

absl::StatusOr<std::string> FindSessionFile(const StoreFolder& folder, const std::string& name) {
  RETURN_IF_ERROR(CheckSessionName(name));
  ASSIGN_OR_RETURN(const StoreFolder::Contents contents, folder.List());
  std::vector<std::string> names;
  for (const StoreFolder::File& file : contents.files) {
    if (!file.session.empty()) names.push_back(file.session);
    if (file.session == name) return file.path;
  }
  for (const StoreFolder::Odd& odd : contents.odd) {
    if (odd.session == name) return absl::FailedPreconditionError(DescribeOdd(odd));
  }
  for (const StoreFolder::File& file : contents.damaged) {
    if (file.session == name) return absl::NotFoundError(DescribeDamaged(file));
  }
  return absl::NotFoundError(
      absl::StrCat("no session \"", name, "\" in the store", DidYouMean(name, names, ""), " (kvm session list)"));
}

absl::StatusOr<std::vector<std::string>> FindAllSessionFiles(const StoreFolder& folder, const std::string& name) {
  std::vector<std::string> paths;
  const absl::StatusOr<std::string> intact = FindSessionFile(folder, name);
  if (intact.ok()) paths.push_back(*intact);
  ASSIGN_OR_RETURN(const StoreFolder::Contents contents, folder.List());
  for (const StoreFolder::Odd& odd : contents.odd) {
    if (odd.session != name) continue;
    // What is in it may be anything.
    if (odd.is_folder) return absl::FailedPreconditionError(DescribeOdd(odd));
    paths.push_back(odd.path);
  }
  for (const StoreFolder::File& file : contents.damaged) {
    if (file.session == name) paths.push_back(file.path);
  }
  if (paths.empty()) return intact.status();
  return paths;
}

std::string DescribeDamaged(const StoreFolder::File& file) {
  return absl::StrCat(file.path, ": was damaged and set aside; kvm session drop ",
                      file.session.empty() ? "--snapshots" : file.session, " deletes it");
}

std::string DescribeOdd(const StoreFolder::Odd& odd) {
  const std::string drop = odd.in_snapshots       ? "; kvm session drop --snapshots deletes it"
                           : !odd.session.empty() ? absl::StrCat("; kvm session drop ", odd.session, " deletes it")
                                                  : "";
  return absl::StrCat(odd.why, odd.is_folder ? "; it is not the store's to delete" : drop);
}

absl::StatusOr<std::string> NewSessionFile(const StoreFolder& folder, const std::string& name) {
  RETURN_IF_ERROR(CheckSessionName(name));
  const std::string path = folder.SessionPath(name);
  if (!NameExists(path)) {
    RETURN_IF_ERROR(AtomicFile::Create(path).status());
    return path;
  }
  return absl::AlreadyExistsError(
      absl::StrCat("there is a session \"", name, "\" already (", path, "); choose another name or drop it first"));
}

absl::Status CopySnapshot(const std::string& from, const std::string& to) {
  RETURN_IF_ERROR(CheckSnapshot(from));
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(from));
  ASSIGN_OR_RETURN(AtomicFile copy, AtomicFile::Create(to));
  RETURN_IF_ERROR(copy.Append({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}));
  return copy.Commit();
}

}  // namespace kvm
