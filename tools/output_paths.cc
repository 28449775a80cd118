#include "tools/output_paths.h"

#include <errno.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kvm/io/atomic_file.h"
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

absl::Status CheckOutsideModel(const std::string& out, const std::string& model) {
  std::error_code error;
  if (!fs::is_directory(model, error)) return absl::OkStatus();
  const fs::path folder = fs::canonical(model, error);
  fs::path part = WithoutLinks(out);
  while (part.has_relative_path()) {
    part = part.parent_path();
    if (part != folder) continue;
    return absl::InvalidArgumentError(absl::StrCat(out, " lies in the folder of the model that it is made from, ",
                                                   model, "; expected a path outside"));
  }
  return absl::OkStatus();
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
