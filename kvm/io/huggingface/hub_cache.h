#ifndef KVM_IO_HUGGINGFACE_HUB_CACHE_H_
#define KVM_IO_HUGGINGFACE_HUB_CACHE_H_

#include <string>

#include "absl/status/statusor.h"

namespace kvm {

// The folder with the files of a model that a hub's client downloaded: for a `models--ORG--NAME` folder of its cache
// the snapshot that refs/main names, or else the only one there is; any other path as it is. Files in a snapshot are
// links into the cache. InvalidArgument for several snapshots without refs/main, NotFound for none, or for one that
// refs/main names in vain.
absl::StatusOr<std::string> ResolveHubFolder(const std::string& path);

}  // namespace kvm

#endif  // KVM_IO_HUGGINGFACE_HUB_CACHE_H_
