#ifndef KVM_IO_TOKENIZER_PATTERNS_UNICODE_H_
#define KVM_IO_TOKENIZER_PATTERNS_UNICODE_H_

// What Unicode 15 says of characters, as far as tokenizers ask. All text here is UTF-8 without faults (utf8.h checks).

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace kvm {

// The first and the last character of `text`, which is not empty, and the number of its bytes.
struct Character {
  int32_t code;
  size_t length;
};
Character FirstCharacter(absl::string_view text);
Character LastCharacter(absl::string_view text);

// `text` + the character.
void AppendCharacter(int32_t code, std::string* text);

// White_Space.
bool IsWhiteSpace(int32_t code);

// What \w stands for in Unicode's regular expressions: letters, marks, decimal digits, connectors, joiners.
bool IsWordCharacter(int32_t code);

// False only for text that is in NFC already; true says nothing. Fast.
bool MayChangeInNfc(absl::string_view text);

// `text` in Unicode's normalization form C. Time linear in its length, n·log n where marks are out of order.
std::string ToNfc(absl::string_view text);

}  // namespace kvm

#endif  // KVM_IO_TOKENIZER_PATTERNS_UNICODE_H_
