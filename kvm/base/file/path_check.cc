#include "kvm/base/file/path_check.h"

#include <errno.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace kvm {

std::string DescribePathError(const std::string& path, int error) {
  std::error_code ignored;
  const std::filesystem::path target = std::filesystem::read_symlink(path, ignored);
  if (!target.empty() && error == ENOENT) return absl::StrCat("a link to ", target.string(), ", which is not there");
  if (!target.empty() && error == ELOOP) return absl::StrCat("a link to ", target.string(), " that leads in a circle");
  return std::strerror(error);
}

absl::Status CheckPathExists(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0) return absl::OkStatus();
  const int error = errno;
  if (!NameExists(path) && (error == ENOENT || error == ENOTDIR)) {
    return absl::NotFoundError(absl::StrCat(path, ": no such file or folder"));
  }
  return absl::FailedPreconditionError(absl::StrCat(path, ": ", DescribePathError(path, error)));
}

bool NameExists(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0;
}

}  // namespace kvm
