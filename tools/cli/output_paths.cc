#include "tools/cli/output_paths.h"

#include <errno.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/file/file_kind.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/base/file/path_check.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/model_file.h"

namespace kvm {
namespace {

namespace fs = std::filesystem;

// The path without links, as far as there is something there.
fs::path WithoutLinks(const std::string& path) {
  const absl::StatusOr<std::string> target = ResolveOutputPath(path);
  std::error_code error;
  const fs::path absolute = fs::absolute(target.ok() ? *target : path, error);
  const fs::path canonical = fs::weakly_canonical(absolute, error);
  return error ? absolute.lexically_normal() : canonical;
}

}  // namespace

bool IsSameFile(const std::string& a, const std::string& b) {
  std::error_code error;
  if (fs::equivalent(a, b, error) && !error) return true;
  return WithoutLinks(a) == WithoutLinks(b);
}

absl::Status CheckNotOfModel(const FlagSet& flags, absl::string_view name, const std::string& out,
                             const std::string& model) {
  if (out.empty() || model.empty()) return absl::OkStatus();
  for (const std::string& file : FilesOfModel(model)) {
    if (!IsSameFile(out, file)) continue;
    return flags.Wrong(absl::StrCat("--", name, "=", out, " is a file of ", flags.Source("model"), "=", model,
                                    "; expected another one"));
  }
  return absl::OkStatus();
}

bool IsInFolder(const std::string& path, const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return false;
  const fs::path canonical = fs::canonical(folder, error);
  fs::path part = WithoutLinks(path);
  while (part.has_relative_path()) {
    part = part.parent_path();
    if (part == canonical) return true;
  }
  return false;
}

absl::Status CheckNotOfStore(const std::string& out) {
  const fs::path path = WithoutLinks(out);
  const fs::path parent = path.parent_path();
  const auto is_store = [](const fs::path& folder) {
    std::error_code error;
    return fs::is_regular_file(folder / "lock", error) && fs::is_directory(folder / "sessions", error) &&
           fs::is_directory(folder / "snapshots", error);
  };
  fs::path store;
  if (parent.filename() == "sessions" || parent.filename() == "snapshots") store = parent.parent_path();
  if (path.filename() == "lock" || path.filename() == "pins") store = parent;
  if (store.empty() || !is_store(store)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(out, " lies in the state store ", store.string(),
                   ", whose files it alone writes; expected a path outside, or --store=", store.string(),
                   " and the name of a session"));
}

absl::Status CheckIsNew(const std::string& out) {
  RETURN_IF_ERROR(CheckNotOfStore(out));
  ASSIGN_OR_RETURN(const std::string target, ResolveOutputPath(out));
  if (!NameExists(target)) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(out, ": exists already; expected the name of a new file"));
}

absl::Status CheckIsNewOrSnapshot(const std::string& out) {
  RETURN_IF_ERROR(CheckNotOfStore(out));
  ASSIGN_OR_RETURN(const std::string target, ResolveOutputPath(out));
  if (!NameExists(target)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(out));
  const absl::Span<const uint8_t> start = file.bytes().subspan(0, kFileKindBytes);
  const FileKind kind = DetectFileKind({reinterpret_cast<const char*>(start.data()), start.size()});
  if (kind == FileKind::kSnapshot) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat(out, ": exists already and is no snapshot; expected a new file, or a snapshot to replace"));
}

absl::Status CheckOutsideModel(const std::string& out, const std::string& model) {
  if (!IsInFolder(out, model)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(out, " lies in the folder of the model that it is made from, ", model, "; expected a path outside"));
}

absl::Status CheckCanMakeFolder(const std::string& path) {
  std::error_code error;
  fs::path part = fs::absolute(path, error);
  while (!fs::exists(part, error) && part != part.parent_path()) part = part.parent_path();
  const std::string shown = fs::equivalent(part, path, error) ? path : absl::StrCat(path, ": ", part.string());
  if (!fs::is_directory(part, error)) {
    return absl::FailedPreconditionError(absl::StrCat(shown, " is no folder; expected one that can be written"));
  }
  if (access(part.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat(shown, " cannot be written"));
}

}  // namespace kvm
