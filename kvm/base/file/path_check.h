#ifndef KVM_BASE_FILE_PATH_CHECK_H_
#define KVM_BASE_FILE_PATH_CHECK_H_

// Why a path leads to nothing.

#include <string>

#include "absl/status/status.h"

namespace kvm {

// What the error `error` (an errno) of opening or finding `path` means: where a broken link leads, or what the system
// calls the error.
std::string DescribePathError(const std::string& path, int error);

// OK if the path leads to something. Otherwise, beginning with `path`: NotFound when nothing has that name,
// FailedPrecondition for a link that leads nowhere or in a circle and for what the system does not let us see.
absl::Status CheckPathExists(const std::string& path);

// Whether something has that name, a broken link included: opening it says more.
bool NameExists(const std::string& path);

}  // namespace kvm

#endif  // KVM_BASE_FILE_PATH_CHECK_H_
