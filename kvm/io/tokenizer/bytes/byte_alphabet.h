#ifndef KVM_IO_TOKENIZER_BYTES_BYTE_ALPHABET_H_
#define KVM_IO_TOKENIZER_BYTES_BYTE_ALPHABET_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace kvm {

// How byte-level vocabularies write bytes as characters: printable Latin-1 as itself, the other bytes, in order, as
// U+0100 and on.
class ByteAlphabet {
 public:
  ByteAlphabet();

  // Sets `bytes` to what `text`, which is UTF-8, stands for. False when it has a character of no byte.
  bool Decode(absl::string_view text, std::string* bytes) const;

 private:
  std::array<int16_t, 0x144> bytes_;  // by character; −1 for none
};

}  // namespace kvm

#endif  // KVM_IO_TOKENIZER_BYTES_BYTE_ALPHABET_H_
