#include "kvm/io/byte_level_bpe.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "kvm/io/added_tokens.h"
#include "kvm/io/byte_pair_merger.h"
#include "kvm/io/mapped_file.h"
#include "kvm/io/tokenizer_json.h"
#include "kvm/io/utf8.h"
#include "kvm/io/word_splitter.h"
#include "kvm/status_macros.h"

namespace kvm {
namespace {

constexpr absl::string_view kEndOfText = "<|endoftext|>";
// Longer words are rare, and remembering them would cost more than it saves.
constexpr size_t kLongestRemembered = 32;
constexpr size_t kMostRemembered = size_t{1} << 17;

class ByteLevelBpe : public Tokenizer {
 public:
  ByteLevelBpe(BpeSpec spec, WordSplitter splitter)
      : spec_(std::move(spec)), splitter_(std::move(splitter)), merger_(spec_.byte_ids) {
    for (const BpeSpec::Merge& merge : spec_.merges) merger_.AddMerge(merge.left, merge.right, merge.merged);
    for (const BpeSpec::AddedToken& token : spec_.added_tokens) {
      (token.normalized ? late_ : early_).Add(token.content, token.id);
    }
    const auto end_of_text = std::find(spec_.token_bytes.begin(), spec_.token_bytes.end(), kEndOfText);
    if (end_of_text != spec_.token_bytes.end()) {
      end_of_text_ = static_cast<int32_t>(end_of_text - spec_.token_bytes.begin());
    }
    spec_.merges = {};  // merger_ has them
  }

  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text) const override;
  absl::string_view TokenBytes(int32_t id) const override {
    return id < 0 || id >= vocab_size() ? absl::string_view() : spec_.token_bytes[id];
  }
  int32_t vocab_size() const override { return static_cast<int32_t>(spec_.token_bytes.size()); }
  int32_t end_of_text() const override { return end_of_text_; }

 private:
  // Everything that one call of Encode needs and changes.
  struct Call {
    absl::string_view text;
    std::vector<int32_t> ids;
    WordSplitter::Scanner scanner;
    BytePairMerger::Scratch scratch;
    std::deque<std::string> prefixed;  // pieces with the prefix space; words that are remembered lie in them
    struct Range {
      size_t begin;
      size_t end;
    };
    absl::flat_hash_map<absl::string_view, Range> words;  // seen before → their tokens in `ids`
  };

  absl::Status EncodePiece(absl::string_view piece, Call* call) const;
  void EncodeWord(absl::string_view word, Call* call) const;

  BpeSpec spec_;
  WordSplitter splitter_;
  BytePairMerger merger_;
  AddedTokens early_;  // found in the whole text
  AddedTokens late_;   // found in what the early ones leave
  int32_t end_of_text_ = -1;
};

absl::StatusOr<std::vector<int32_t>> ByteLevelBpe::Encode(absl::string_view text) const {
  if (text.size() >= std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("text of ", text.size(), " bytes; expected less than 4 GiB"));
  }
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid != text.size()) {
    return absl::InvalidArgumentError(absl::StrCat("text is not valid UTF-8 at byte ", invalid));
  }
  Call call = {text, {}, splitter_.Scan(), {}, {}, {}};
  for (const AddedTokens::Piece& outer : early_.Split(text)) {
    if (outer.id >= 0) {
      call.ids.push_back(outer.id);
      continue;
    }
    for (const AddedTokens::Piece& inner : late_.Split(outer.text)) {
      if (inner.id >= 0) {
        call.ids.push_back(inner.id);
      } else {
        RETURN_IF_ERROR(EncodePiece(inner.text, &call));
      }
    }
  }
  return std::move(call.ids);
}

absl::Status ByteLevelBpe::EncodePiece(absl::string_view piece, Call* call) const {
  for (const char& byte : piece) {
    if (merger_.byte_id(static_cast<uint8_t>(byte)) < 0) {
      return absl::InvalidArgumentError(absl::StrCat("byte ", &byte - call->text.data(), " of the text, 0x",
                                                     absl::Hex(static_cast<uint8_t>(byte), absl::kZeroPad2),
                                                     ", has no token in the vocabulary"));
    }
  }
  if (spec_.add_prefix_space && piece[0] != ' ') {
    call->prefixed.push_back(absl::StrCat(" ", piece));
    piece = call->prefixed.back();
  }
  if (!spec_.use_regex) {
    EncodeWord(piece, call);
    return absl::OkStatus();
  }
  while (!piece.empty()) {
    ASSIGN_OR_RETURN(const size_t length, call->scanner.FirstWord(piece));
    EncodeWord(piece.substr(0, length), call);
    piece.remove_prefix(length);
  }
  return absl::OkStatus();
}

void ByteLevelBpe::EncodeWord(absl::string_view word, Call* call) const {
  std::vector<int32_t>& ids = call->ids;
  if (word.size() > kLongestRemembered) {
    merger_.Encode(word, &call->scratch, &ids);
    return;
  }
  const auto seen = call->words.find(word);
  if (seen != call->words.end()) {
    for (size_t i = seen->second.begin; i < seen->second.end; ++i) ids.push_back(ids[i]);
    return;
  }
  const size_t begin = ids.size();
  merger_.Encode(word, &call->scratch, &ids);
  if (call->words.size() < kMostRemembered) call->words[word] = {begin, ids.size()};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseByteLevelBpe(absl::string_view json, const std::string& source) {
  ASSIGN_OR_RETURN(BpeSpec spec, ParseTokenizerJson(json, source));
  ASSIGN_OR_RETURN(WordSplitter splitter, WordSplitter::Create());
  return std::make_unique<ByteLevelBpe>(std::move(spec), std::move(splitter));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadByteLevelBpe(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string json, ReadFile(path));
  return ParseByteLevelBpe(json, path);
}

}  // namespace kvm
