#ifndef KVM_TOOLS_FLAGS_SNAPSHOT_ADVICE_H_
#define KVM_TOOLS_FLAGS_SNAPSHOT_ADVICE_H_

#include <string>

#include "absl/status/status.h"
#include "kvm/state/model_identity.h"

namespace kvm {

// `status` as it is, but when it is FailedPrecondition because the snapshot in `path` was computed with other options
// than those of `loaded`, the same model: then with the flags that the snapshot needs, all of them.
absl::Status WithFlagsOfSnapshot(const absl::Status& status, const std::string& path, const ModelIdentity& loaded);

}  // namespace kvm

#endif  // KVM_TOOLS_FLAGS_SNAPSHOT_ADVICE_H_
