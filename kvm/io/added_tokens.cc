#include "kvm/io/added_tokens.h"

#include <algorithm>
#include <cassert>

#include "absl/strings/match.h"

namespace kvm {

void AddedTokens::Add(const std::string& content, int32_t id) {
  assert(!content.empty());
  std::vector<Token>& tokens = by_first_byte_[static_cast<uint8_t>(content[0])];
  const auto shorter = std::find_if(tokens.begin(), tokens.end(),
                                    [&](const Token& token) { return token.content.size() < content.size(); });
  tokens.insert(shorter, {content, id});
}

// The longest token that `text` begins with, or null.
const AddedTokens::Token* AddedTokens::FirstToken(absl::string_view text) const {
  for (const Token& token : by_first_byte_[static_cast<uint8_t>(text[0])]) {
    if (absl::StartsWith(text, token.content)) return &token;
  }
  return nullptr;
}

std::vector<AddedTokens::Piece> AddedTokens::Split(absl::string_view text) const {
  std::vector<Piece> pieces;
  size_t begin = 0;  // of the text that no token has ended
  size_t position = 0;
  while (position < text.size()) {
    const Token* token = FirstToken(text.substr(position));
    if (token == nullptr) {
      ++position;
      continue;
    }
    if (begin < position) pieces.push_back({text.substr(begin, position - begin), -1});
    pieces.push_back({text.substr(position, token->content.size()), token->id});
    position += token->content.size();
    begin = position;
  }
  if (begin < text.size()) pieces.push_back({text.substr(begin), -1});
  return pieces;
}

}  // namespace kvm
