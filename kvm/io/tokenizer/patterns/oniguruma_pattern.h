#ifndef KVM_IO_TOKENIZER_PATTERNS_ONIGURUMA_PATTERN_H_
#define KVM_IO_TOKENIZER_PATTERNS_ONIGURUMA_PATTERN_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kvm {

// The PCRE2 pattern (for UTF mode, lines ended by "\n") that matches what `pattern` matches in Oniguruma, whose syntax
// the regular expressions of tokenizer.json files have. The two read some things differently: "\s", "\h", "{1,3}+",
// "$". InvalidArgument, naming the byte, for broken patterns and for what has no equal: back references, named groups,
// intersections of classes, options in mid-pattern, and letters regardless of case beyond ASCII.
absl::StatusOr<std::string> TranslateOniguruma(absl::string_view pattern);

// The PCRE2 pattern of `text` itself.
std::string LiteralPattern(absl::string_view text);

}  // namespace kvm

#endif  // KVM_IO_TOKENIZER_PATTERNS_ONIGURUMA_PATTERN_H_
