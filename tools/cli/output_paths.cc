#include "tools/cli/output_paths.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/file/atomic_file.h"
#include "kvm/base/file/file_kind.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/base/file/path_check.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/model_file.h"
#include "kvm/io/tensors/safetensors.h"
#include "kvm/io/tokenizer/token_shards.h"

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

std::string NameOf(OutputKind kind) {
  switch (kind) {
    case OutputKind::kPicture:
      return "picture (SVG)";
    case OutputKind::kRowList:
      return "list of rows (CSV)";
    case OutputKind::kLogits:
      return "file of logits";
    case OutputKind::kState:
      return "file of a state";
    case OutputKind::kTokenShard:
      return "token file";
    case OutputKind::kSnapshot:
      return "snapshot";
    case OutputKind::kModel:
      return "model";
  }
  return "";
}

// Whether all tensors of a safetensors file, of which there are some, have such names.
bool HasOnlyTensors(const std::string& path, absl::FunctionRef<bool(absl::string_view)> is_such) {
  const absl::StatusOr<std::unique_ptr<SafetensorsFile>> file = SafetensorsFile::Open(path);
  if (!file.ok()) return false;
  const std::vector<std::string> names = (*file)->Names();
  return !names.empty() && std::all_of(names.begin(), names.end(), is_such);
}

bool IsOfKind(const std::string& path, OutputKind kind) {
  const absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return false;
  const absl::string_view bytes(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  switch (kind) {
    case OutputKind::kPicture:
      return absl::StartsWith(bytes, "<svg ");
    case OutputKind::kRowList:
      return absl::StartsWith(bytes, "position,row\n");
    case OutputKind::kLogits:
      return HasOnlyTensors(path, [](absl::string_view name) {
        return name == "logits" || absl::StartsWith(name, "hidden_after_layer_");
      });
    case OutputKind::kState:
      return HasOnlyTensors(path, [](absl::string_view name) { return absl::StartsWith(name, "cache."); });
    case OutputKind::kTokenShard:
      return IsTokenShard(bytes);
    case OutputKind::kSnapshot:
      return DetectFileKind(bytes.substr(0, kFileKindBytes)) == FileKind::kSnapshot;
    case OutputKind::kModel:
      return false;
  }
  return false;
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

void DefineForceFlag(FlagSet& flags, bool* force) {
  flags.Bool("force", force, "replace a file that is where the output goes, whatever it is");
}

absl::Status CheckOutput(const std::string& out, OutputKind kind, bool force) {
  RETURN_IF_ERROR(CheckNotOfStore(out));
  ASSIGN_OR_RETURN(const std::string target, ResolveOutputPath(out));
  if (NameExists(target) && !force && !IsOfKind(target, kind)) {
    const std::string name = NameOf(kind);
    return absl::AlreadyExistsError(
        kind == OutputKind::kModel
            ? absl::StrCat(out, ": exists already; expected a new file, or --force to replace this one")
            : absl::StrCat(out, ": exists already and is no ", name, "; expected a new file, a ", name,
                           " to replace, or --force"));
  }
  return AtomicFile::Create(out).status();
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
