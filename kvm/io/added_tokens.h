#ifndef KVM_IO_ADDED_TOKENS_H_
#define KVM_IO_ADDED_TOKENS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace kvm {

// Tokens that are recognized in text before anything else looks at it: "<|endoftext|>".
class AddedTokens {
 public:
  // `content` is not empty and was not added before.
  void Add(const std::string& content, int32_t id);

  struct Piece {
    absl::string_view text;
    int32_t id;  // −1 for text between tokens
  };

  // All of `text` in order; no piece is empty. At each place the longest token counts, from left to right.
  std::vector<Piece> Split(absl::string_view text) const;

 private:
  struct Token {
    std::string content;
    int32_t id;
  };

  const Token* FirstToken(absl::string_view text) const;

  std::array<std::vector<Token>, 256> by_first_byte_;  // longest first
};

}  // namespace kvm

#endif  // KVM_IO_ADDED_TOKENS_H_
