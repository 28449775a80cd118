#ifndef KVM_BASE_FILE_UTF8_H_
#define KVM_BASE_FILE_UTF8_H_

// Walking over bytes that may or may not be UTF-8.

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace kvm {

enum class Utf8Kind {
  kWhole,       // one character
  kBroken,      // begins no character, whatever follows
  kUnfinished,  // the text ends inside what may become a character
};

struct Utf8Step {
  Utf8Kind kind;
  // Bytes of the character; of anything else, of the longest piece that could have begun one, at least 1. (Replacing
  // each such piece by one U+FFFD is what Unicode recommends, chapter 3.9.)
  size_t length;
};

// Classifies the front of `text`, which is not empty.
Utf8Step FirstUtf8(absl::string_view text);

// The offset of the first byte that belongs to no whole character; text.size() when all of it is UTF-8.
size_t FindInvalidUtf8(absl::string_view text);

// `text` without the byte order mark (EF BB BF) that some editors put in front of UTF-8.
absl::string_view SkipByteOrderMark(absl::string_view text);

// `text` in quotes for messages: as Printable shows it, with backslashes before quotes and backslashes, cut after 200
// bytes.
std::string Quoted(absl::string_view text);

// `text` fit for a terminal, as all messages show what is not theirs: control characters and bytes that are not UTF-8
// as \xNN, the rest as it is. Text longer than `longest` bytes is cut there and ends in "...".
std::string Printable(absl::string_view text, size_t longest = 200);

}  // namespace kvm

#endif  // KVM_BASE_FILE_UTF8_H_
