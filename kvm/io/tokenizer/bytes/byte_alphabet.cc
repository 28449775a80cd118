#include "kvm/io/tokenizer/bytes/byte_alphabet.h"

#include "kvm/io/tokenizer/patterns/unicode.h"

namespace kvm {

ByteAlphabet::ByteAlphabet() {
  bytes_.fill(-1);
  int32_t next = 0x100;
  for (int32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    bytes_[printable ? byte : next++] = static_cast<int16_t>(byte);
  }
}

bool ByteAlphabet::Decode(absl::string_view text, std::string* bytes) const {
  bytes->clear();
  while (!text.empty()) {
    const Character character = FirstCharacter(text);
    if (character.code >= static_cast<int32_t>(bytes_.size()) || bytes_[character.code] < 0) return false;
    bytes->push_back(static_cast<char>(bytes_[character.code]));
    text.remove_prefix(character.length);
  }
  return true;
}

}  // namespace kvm
