#ifndef KVM_TOOLS_CLI_OUTPUT_PATHS_H_
#define KVM_TOOLS_CLI_OUTPUT_PATHS_H_

// What can be known of outputs before the work that makes them.

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tools/cli/flag_set.h"

namespace kvm {

// Whether writing one path would change what the other holds, through links as well. Neither need exist.
bool IsSameFile(const std::string& a, const std::string& b);

// OK unless writing `out`, the value of the flag --`name`, would change a file that `model` is read from, or add one
// that would then be read: UsageError that names both. A model without a path is none.
absl::Status CheckNotOfModel(const FlagSet& flags, absl::string_view name, const std::string& out,
                             const std::string& model);

// Whether a path lies in a folder, through links as well. The path need not exist.
bool IsInFolder(const std::string& path, const std::string& folder);

// OK unless `out` is, or would be, a file of a state store's folder, which are the store's alone: FailedPrecondition
// that names it.
absl::Status CheckNotOfStore(const std::string& out);

// Errors of CheckNotOfStore; OK unless there is something at `out`, which a broken link is not: AlreadyExists, or the
// errors of ResolveOutputPath for what is no file.
absl::Status CheckIsNew(const std::string& out);

// The same, but for a file that begins as a snapshot of a session does: that may be replaced.
absl::Status CheckIsNewOrSnapshot(const std::string& out);

// OK unless `out` would lie in the folder of a model that it is made from, `model`, which may be a file as well. Links
// are followed. InvalidArgument that names both.
absl::Status CheckOutsideModel(const std::string& out, const std::string& model);

// Whether a folder `path` is there and writable or could be made: FailedPrecondition or PermissionDenied, naming the
// part of the path that stands in the way.
absl::Status CheckCanMakeFolder(const std::string& path);

}  // namespace kvm

#endif  // KVM_TOOLS_CLI_OUTPUT_PATHS_H_
