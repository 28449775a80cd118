#ifndef KVM_IO_JSON_STRICT_JSON_H_
#define KVM_IO_JSON_STRICT_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace kvm {

// Parses one JSON value that is all of `text`. InvalidArgument, beginning with `source` and naming the byte or key, for
// anything that is not JSON, for text that is not UTF-8 (which a byte order mark may precede), for a key that an object
// has twice, and for values nested more than 100 deep. Never throws.
absl::StatusOr<nlohmann::json> ParseStrictJson(absl::string_view text, const std::string& source);

}  // namespace kvm

#endif  // KVM_IO_JSON_STRICT_JSON_H_
