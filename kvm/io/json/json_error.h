#ifndef KVM_IO_JSON_JSON_ERROR_H_
#define KVM_IO_JSON_JSON_ERROR_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace kvm {

// "byte 12 (line 2, column 4)" of `text`; `byte` counts from 1, as lines and columns do, and may be one past the end.
std::string JsonPlace(absl::string_view text, size_t byte);

// What the parser found wrong with `text`, from the arguments of its parse_error event:
// "not JSON at byte 12 (line 2, column 4): unexpected ']'".
std::string DescribeJsonError(absl::string_view text, size_t byte, absl::string_view last_token,
                              const nlohmann::json::exception& exception);

}  // namespace kvm

#endif  // KVM_IO_JSON_JSON_ERROR_H_
