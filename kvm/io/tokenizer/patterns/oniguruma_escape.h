#ifndef KVM_IO_TOKENIZER_PATTERNS_ONIGURUMA_ESCAPE_H_
#define KVM_IO_TOKENIZER_PATTERNS_ONIGURUMA_ESCAPE_H_

// The escapes of Oniguruma's patterns, in PCRE2's terms; for oniguruma_pattern.cc alone, which see.

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kvm {

// What an escape stands for: a character, a class or a place.
struct OnigurumaEscape {
  int32_t code = -1;               // the character
  std::string members;             // of the class, as they stand in brackets; of a place, the escape itself
  bool complement = false;         // of the members
  std::string complement_members;  // the complement's members, where they can be written
  bool is_place = false;           // \A, \z
  bool has_letters = false;        // of both cases, perhaps
};

// InvalidArgument: "byte `at` of the pattern: `what`".
absl::Status RefusePattern(size_t at, absl::string_view what);

// Reads the escape whose backslash is at `*at` of `pattern`, which is UTF-8, and moves `*at` behind it.
absl::StatusOr<OnigurumaEscape> ParseOnigurumaEscape(absl::string_view pattern, bool in_class, size_t* at);

}  // namespace kvm

#endif  // KVM_IO_TOKENIZER_PATTERNS_ONIGURUMA_ESCAPE_H_
