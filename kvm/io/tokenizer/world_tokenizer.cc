#include "kvm/io/tokenizer/world_tokenizer.h"

#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/tokenizer/bytes/byte_trie.h"
#include "kvm/io/tokenizer/python_literal.h"

namespace kvm {
namespace {

constexpr int32_t kIds = 1 << 16;
constexpr int32_t kEndOfText = 0;

class WorldTokenizer : public Tokenizer {
 public:
  // Both hold the tokens, one by id, one in any order.
  WorldTokenizer(std::vector<std::string> token_bytes, std::vector<std::pair<std::string, int32_t>> tokens)
      : token_bytes_(std::move(token_bytes)), trie_(std::move(tokens)) {}

  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text) const override {
    RETURN_IF_ERROR(CheckUtf8(text));
    std::vector<int32_t> ids;
    size_t position = 0;
    while (position < text.size()) {
      const ByteTrie::Match match = trie_.Longest(text.substr(position));
      if (match.length == 0) {
        return absl::InvalidArgumentError(absl::StrCat("byte ", position, " of the text, 0x",
                                                       absl::Hex(static_cast<uint8_t>(text[position]), absl::kZeroPad2),
                                                       ", begins no token of the vocabulary"));
      }
      ids.push_back(match.value);
      position += match.length;
    }
    return ids;
  }

  absl::string_view TokenBytes(int32_t id) const override {
    return id < 0 || id >= kIds ? absl::string_view() : token_bytes_[id];
  }
  int32_t vocab_size() const override { return kIds; }
  int32_t end_of_text() const override { return kEndOfText; }

 private:
  std::vector<std::string> token_bytes_;  // by id
  ByteTrie trie_;
};

struct Entry {
  int32_t id;
  std::string bytes;
};

// A line: id, literal, number of bytes. The literal may have spaces in it.
absl::StatusOr<Entry> ParseLine(absl::string_view line) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == absl::string_view::npos || last == first) {
    return absl::InvalidArgumentError("expected an id, a literal and a length with a space between them");
  }
  const auto parse_number = [&](absl::string_view text, const char* what, int64_t low, int64_t high, int64_t* number) {
    const bool is_number = text.size() < 10 && text.find_first_not_of("0123456789") == absl::string_view::npos;
    if (is_number && absl::SimpleAtoi(text, number) && *number >= low && *number <= high) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the ", what, " is ", Quoted(text), "; expected a number from ", low, " to ", high));
  };
  int64_t id = 0;
  int64_t length = 0;
  RETURN_IF_ERROR(parse_number(line.substr(0, first), "id", 1, kIds - 1, &id));
  RETURN_IF_ERROR(parse_number(line.substr(last + 1), "length", 1, 999999999, &length));
  ASSIGN_OR_RETURN(std::string bytes, ParsePythonLiteral(line.substr(first + 1, last - first - 1)));
  if (static_cast<int64_t>(bytes.size()) != length) {
    return absl::InvalidArgumentError(
        absl::StrCat("the literal has ", bytes.size(), " bytes; expected ", length, ", the length given"));
  }
  return Entry{static_cast<int32_t>(id), std::move(bytes)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseWorldVocabulary(absl::string_view text, const std::string& source) {
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid != text.size()) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": not UTF-8 at byte ", invalid));
  }
  text = SkipByteOrderMark(text);
  std::vector<std::string> token_bytes(kIds);
  std::vector<std::pair<std::string, int32_t>> tokens;
  absl::flat_hash_set<std::string> seen;
  for (int64_t number = 1; !text.empty(); ++number) {
    const auto refuse = [&](absl::string_view what) {
      return absl::InvalidArgumentError(absl::StrCat(source, ": line ", number, ": ", what));
    };
    const size_t end = text.find('\n');
    absl::StatusOr<Entry> entry = ParseLine(absl::StripSuffix(text.substr(0, end), "\r"));
    if (!entry.ok()) return refuse(entry.status().message());
    if (!token_bytes[entry->id].empty()) return refuse(absl::StrCat("the id ", entry->id, " has a token already"));
    if (!seen.insert(entry->bytes).second) return refuse(absl::StrCat(Quoted(entry->bytes), " has an id already"));
    token_bytes[entry->id] = entry->bytes;
    tokens.emplace_back(std::move(entry->bytes), entry->id);
    text.remove_prefix(end == absl::string_view::npos ? text.size() : end + 1);
  }
  if (tokens.empty()) return absl::InvalidArgumentError(absl::StrCat(source, ": no tokens"));
  return std::make_unique<WorldTokenizer>(std::move(token_bytes), std::move(tokens));
}

}  // namespace kvm
