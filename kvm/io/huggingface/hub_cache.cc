#include "kvm/io/huggingface/hub_cache.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"

namespace kvm {
namespace {

namespace fs = std::filesystem;

bool IsFolder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

}  // namespace

absl::StatusOr<std::string> ResolveHubFolder(const std::string& path) {
  const fs::path snapshots = fs::path(path) / "snapshots";
  std::error_code error;
  if (!IsFolder(snapshots) || fs::exists(fs::path(path) / "config.json", error)) return path;

  const fs::path main = fs::path(path) / "refs" / "main";
  if (fs::exists(main, error)) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(main.string()));
    const std::string name(absl::StripAsciiWhitespace(SkipByteOrderMark(text)));
    const bool is_name = !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
    if (is_name && IsFolder(snapshots / name)) return (snapshots / name).string();
    return absl::NotFoundError(absl::StrCat(main.string(), ": names the snapshot '", Printable(name.substr(0, 80)),
                                            "', which is not in ", snapshots.string()));
  }
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(snapshots, error)) {
    if (IsFolder(entry.path())) names.push_back(entry.path().filename().string());
  }
  if (error)
    return absl::FailedPreconditionError(absl::StrCat("cannot read ", snapshots.string(), ": ", error.message()));
  std::sort(names.begin(), names.end());
  if (names.size() == 1) return (snapshots / names[0]).string();
  if (names.empty()) return absl::NotFoundError(absl::StrCat(snapshots.string(), ": no snapshot here"));
  return absl::InvalidArgumentError(
      absl::StrCat(snapshots.string(), ": several snapshots and no refs/main; name one: ", absl::StrJoin(names, ", ")));
}

}  // namespace kvm
