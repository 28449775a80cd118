#include "kvm/io/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "kvm/io/tokenizer/patterns/unicode.h"

namespace kvm {
namespace {

ByteTrie TrieOf(const std::vector<AddedToken>& tokens) {
  std::vector<std::pair<std::string, int32_t>> strings;
  absl::flat_hash_set<absl::string_view> seen;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (seen.insert(tokens[i].content).second) strings.emplace_back(tokens[i].content, static_cast<int32_t>(i));
  }
  return ByteTrie(std::move(strings));
}

bool TouchesWord(absl::string_view before, absl::string_view after) {
  return (!before.empty() && IsWordCharacter(LastCharacter(before).code)) ||
         (!after.empty() && IsWordCharacter(FirstCharacter(after).code));
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), trie_(TrieOf(tokens_)) {}

std::vector<AddedTokens::Piece> AddedTokens::Split(absl::string_view text) const {
  std::vector<Piece> pieces;
  size_t done = 0;  // all before is in `pieces`
  size_t position = 0;
  while (position < text.size()) {
    const ByteTrie::Match match = trie_.Longest(text.substr(position));
    if (match.length == 0) {
      ++position;
      continue;
    }
    const AddedToken& token = tokens_[match.value];
    size_t begin = position;
    size_t end = position += match.length;
    if (token.single_word && TouchesWord(text.substr(0, begin), text.substr(end))) continue;
    if (token.left_strip) {
      while (begin > done) {
        const Character last = LastCharacter(text.substr(done, begin - done));
        if (!IsWhiteSpace(last.code)) break;
        begin -= last.length;
      }
    }
    if (token.right_strip) {
      while (end < text.size()) {
        const Character next = FirstCharacter(text.substr(end));
        if (!IsWhiteSpace(next.code)) break;
        end += next.length;
      }
    }
    if (done < begin) pieces.push_back({text.substr(done, begin - done), -1});
    pieces.push_back({text.substr(begin, end - begin), token.id});
    done = end;
  }
  if (done < text.size()) pieces.push_back({text.substr(done), -1});
  return pieces;
}

}  // namespace kvm
