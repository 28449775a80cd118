#include "kvm/io/tokenizer/byte_level_bpe.h"

#include <deque>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/file/mapped_file.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/tokenizer/added_tokens.h"
#include "kvm/io/tokenizer/bytes/byte_pair_merger.h"
#include "kvm/io/tokenizer/patterns/pre_tokenizer.h"
#include "kvm/io/tokenizer/patterns/unicode.h"
#include "kvm/io/tokenizer/tokenizer_json.h"

namespace kvm {
namespace {

// How vocabularies call the token that ends a text; their files do not say which it is.
constexpr absl::string_view kEndsOfText[] = {"<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "</s>",
                                             "<eos>"};

int32_t FindEndOfText(const std::vector<std::string>& token_bytes) {
  for (absl::string_view name : kEndsOfText) {
    const auto found = absl::c_find(token_bytes, name);
    if (found != token_bytes.end()) return static_cast<int32_t>(found - token_bytes.begin());
  }
  return -1;
}

// Longer words are rare, and remembering them would cost more than it saves.
constexpr size_t kLongestRemembered = 32;
constexpr size_t kMostRemembered = size_t{1} << 17;

class ByteLevelBpe : public Tokenizer {
 public:
  ByteLevelBpe(BpeSpec spec, PreTokenizer pre_tokenizer)
      : spec_(std::move(spec)),
        pre_tokenizer_(std::move(pre_tokenizer)),
        merger_(spec_.byte_ids),
        early_(std::move(spec_.early_tokens)),
        late_(std::move(spec_.late_tokens)),
        knows_all_bytes_(absl::c_find(spec_.byte_ids, -1) == spec_.byte_ids.end()),
        end_of_text_(FindEndOfText(spec_.token_bytes)) {
    for (const BpeSpec::Merge& merge : spec_.merges) merger_.AddMerge(merge.left, merge.right, merge.merged);
    spec_.merges = {};  // merger_ has them
  }

  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text) const override;
  absl::string_view TokenBytes(int32_t id) const override {
    return id < 0 || id >= vocab_size() ? absl::string_view() : spec_.token_bytes[id];
  }
  int32_t vocab_size() const override { return static_cast<int32_t>(spec_.token_bytes.size()); }
  absl::Span<const int32_t> ids_before_text() const override { return spec_.around.before; }
  absl::Span<const int32_t> ids_after_text() const override { return spec_.around.after; }
  absl::Span<const std::string> notes() const override { return spec_.notes; }
  int32_t end_of_text() const override { return end_of_text_; }

 private:
  // Everything that one call of Encode needs and changes.
  struct Call {
    std::vector<int32_t> ids;
    PreTokenizer::Walk walk;
    BytePairMerger::Scratch scratch;
    std::deque<std::string> normalized;  // pieces that NFC changed; words that are remembered lie in them
    struct Range {
      size_t begin;
      size_t end;
    };
    absl::flat_hash_map<absl::string_view, Range> words;  // seen before → their tokens in `ids`
  };

  absl::Status EncodePiece(absl::string_view piece, Call* call) const;
  absl::Status EncodeWord(absl::string_view word, Call* call) const;
  absl::Status EncodeNewWord(absl::string_view word, Call* call) const;

  BpeSpec spec_;
  PreTokenizer pre_tokenizer_;
  BytePairMerger merger_;
  AddedTokens early_;
  AddedTokens late_;
  bool knows_all_bytes_;
  int32_t end_of_text_;
};

absl::StatusOr<std::vector<int32_t>> ByteLevelBpe::Encode(absl::string_view text) const {
  if (text.size() >= std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("text of ", text.size(), " bytes; expected less than 4 GiB"));
  }
  RETURN_IF_ERROR(CheckUtf8(text));
  Call call = {{}, PreTokenizer::Walk(pre_tokenizer_), {}, {}, {}};
  for (const AddedTokens::Piece& piece : early_.Split(text)) {
    if (piece.id >= 0) {
      call.ids.push_back(piece.id);
    } else {
      RETURN_IF_ERROR(EncodePiece(piece.text, &call));
    }
  }
  return std::move(call.ids);
}

absl::Status ByteLevelBpe::EncodePiece(absl::string_view piece, Call* call) const {
  if (spec_.nfc && MayChangeInNfc(piece)) {
    call->normalized.push_back(ToNfc(piece));
    piece = call->normalized.back();
  }
  for (const AddedTokens::Piece& inner : late_.Split(piece)) {
    if (inner.id >= 0) {
      call->ids.push_back(inner.id);
    } else {
      RETURN_IF_ERROR(
          call->walk.ForEachWord(inner.text, [&](absl::string_view word) { return EncodeWord(word, call); }));
    }
  }
  return absl::OkStatus();
}

absl::Status ByteLevelBpe::EncodeWord(absl::string_view word, Call* call) const {
  if (word.size() > kLongestRemembered) return EncodeNewWord(word, call);
  std::vector<int32_t>& ids = call->ids;
  const auto seen = call->words.find(word);
  if (seen != call->words.end()) {
    for (size_t i = seen->second.begin; i < seen->second.end; ++i) ids.push_back(ids[i]);
    return absl::OkStatus();
  }
  const size_t begin = ids.size();
  RETURN_IF_ERROR(EncodeNewWord(word, call));
  if (call->words.size() < kMostRemembered) call->words[word] = {begin, ids.size()};
  return absl::OkStatus();
}

absl::Status ByteLevelBpe::EncodeNewWord(absl::string_view word, Call* call) const {
  if (!spec_.whole_words.empty()) {
    const auto whole = spec_.whole_words.find(word);
    if (whole != spec_.whole_words.end()) {
      call->ids.push_back(whole->second);
      return absl::OkStatus();
    }
  }
  if (!knows_all_bytes_) {
    for (char byte : word) {
      if (merger_.byte_id(static_cast<uint8_t>(byte)) >= 0) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("the byte 0x", absl::Hex(static_cast<uint8_t>(byte), absl::kZeroPad2), " of the text's ",
                       Quoted(word), " has no token in the vocabulary"));
    }
  }
  merger_.Encode(word, &call->scratch, &call->ids);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseByteLevelBpe(absl::string_view json, const std::string& source) {
  ASSIGN_OR_RETURN(BpeSpec spec, ParseTokenizerJson(json, source));
  absl::StatusOr<PreTokenizer> pre_tokenizer = PreTokenizer::Create(spec.splits);
  if (!pre_tokenizer.ok()) {
    return absl::Status(pre_tokenizer.status().code(),
                        absl::StrCat(source, ": pre_tokenizer: ", pre_tokenizer.status().message()));
  }
  return std::make_unique<ByteLevelBpe>(std::move(spec), *std::move(pre_tokenizer));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadByteLevelBpe(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string json, ReadFile(path));
  return ParseByteLevelBpe(json, path);
}

}  // namespace kvm
