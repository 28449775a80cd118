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

// What outputs are. A file that is there already may be replaced by one of its kind, as its contents tell.
enum class OutputKind {
  kPicture,     // SVG
  kRowList,     // CSV of a row map
  kLogits,      // safetensors with logits and hidden states alone
  kState,       // safetensors with a state alone
  kTokenShard,  // token_shards.h
  kSnapshot,    // of a session
  kModel,       // never replaced without `force`: it may be the only one
};

// Adds --force.
void DefineForceFlag(FlagSet& flags, bool* force);

// The rule for all outputs that are files: OK when there is nothing at `out`, or a file of `kind`, or `force` is given
// and there is a file, and when a file can be written there. AlreadyExists, naming `out`; the errors of CheckNotOfStore
// and AtomicFile.
absl::Status CheckOutput(const std::string& out, OutputKind kind, bool force);

// OK unless `out` would lie in the folder of a model that it is made from, `model`, which may be a file as well. Links
// are followed. InvalidArgument that names both.
absl::Status CheckOutsideModel(const std::string& out, const std::string& model);

// Whether a folder `path` is there and writable or could be made: FailedPrecondition or PermissionDenied, naming the
// part of the path that stands in the way.
absl::Status CheckCanMakeFolder(const std::string& path);

}  // namespace kvm

#endif  // KVM_TOOLS_CLI_OUTPUT_PATHS_H_
