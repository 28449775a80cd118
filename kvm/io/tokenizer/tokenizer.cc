#include "kvm/io/tokenizer/tokenizer.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/file/utf8.h"

namespace kvm {
namespace {

constexpr absl::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

}  // namespace

absl::StatusOr<std::string> Decode(const Tokenizer& tokenizer, absl::Span<const int32_t> ids) {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= tokenizer.vocab_size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("token ", i, " is ", ids[i], "; the vocabulary has the ids 0 to ", tokenizer.vocab_size() - 1));
    }
    absl::StrAppend(&text, tokenizer.TokenBytes(ids[i]));
  }
  return text;
}

absl::Status CheckUtf8(absl::string_view text) {
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid == text.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("text is not valid UTF-8 at byte ", invalid));
}

std::string StreamDecoder::Add(int32_t id) {
  if (id < 0 || id >= tokenizer_->vocab_size()) return Finish().append(kReplacement.data(), kReplacement.size());
  absl::StrAppend(&pending_, tokenizer_->TokenBytes(id));
  std::string text;
  absl::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Step step = FirstUtf8(rest);
    if (step.kind == Utf8Kind::kUnfinished) break;
    absl::StrAppend(&text, step.kind == Utf8Kind::kWhole ? rest.substr(0, step.length) : kReplacement);
    rest.remove_prefix(step.length);
  }
  pending_ = std::string(rest);
  return text;
}

std::string StreamDecoder::Finish() {
  if (pending_.empty()) return "";
  pending_.clear();
  return std::string(kReplacement);
}

}  // namespace kvm
