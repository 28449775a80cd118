#ifndef KVM_IO_TOKENIZER_ADDED_TOKENS_H_
#define KVM_IO_TOKENIZER_ADDED_TOKENS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "kvm/io/tokenizer/bytes/byte_trie.h"

namespace kvm {

struct AddedToken {
  std::string content;  // not empty
  int32_t id = -1;
  bool left_strip = false;   // takes the white space before it, too
  bool right_strip = false;  // and that behind it
  bool single_word = false;  // counts only where no letter, digit or the like touches it
};

// Tokens that are recognized in text before anything else looks at it: "<|endoftext|>". Thread-safe.
class AddedTokens {
 public:
  // Of tokens with the same content the first counts.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  struct Piece {
    absl::string_view text;
    int32_t id;  // −1 for text between tokens
  };

  // All of `text`, which is UTF-8, in order; no piece is empty. At each place the longest token counts, from left to
  // right; a token refused for `single_word` hides shorter ones that begin in it.
  std::vector<Piece> Split(absl::string_view text) const;

 private:
  std::vector<AddedToken> tokens_;
  ByteTrie trie_;  // content → place in tokens_
};

}  // namespace kvm

#endif  // KVM_IO_TOKENIZER_ADDED_TOKENS_H_
