#include "kvm/io/word_splitter.h"

#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace kvm {
namespace {

// SPACE stands for Unicode's White_Space: PCRE2's \s has U+180E as well, which the tokenizers that models are trained
// with do not. Runs never give back what they took (++), except that white space leaves one character to a word.
constexpr absl::string_view kPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}++| ?\p{N}++| ?[^SPACE\p{L}\p{N}]++|[SPACE]+(?![^SPACE])|[SPACE]++)";
constexpr absl::string_view kSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

absl::Status PatternError(absl::string_view what, int error) {
  unsigned char text[256] = {};
  pcre2_get_error_message(error, text, sizeof(text));
  return absl::InternalError(absl::StrCat(what, ": ", reinterpret_cast<const char*>(text)));
}

}  // namespace

absl::StatusOr<WordSplitter> WordSplitter::Create() {
  const std::string pattern = absl::StrReplaceAll(kPattern, {{"SPACE", kSpace}});
  int error = 0;
  size_t position = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &position, nullptr);
  if (code == nullptr) return PatternError("cannot compile the pattern of words", error);
  // Where there is no just-in-time compiler, or no memory may be executed, matching is slower but the same.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return WordSplitter(code);
}

WordSplitter::Scanner::Scanner(const pcre2_code* pattern)
    : pattern_(pattern),
      match_(pcre2_match_data_create_from_pattern(pattern, nullptr)),
      context_(pcre2_match_context_create(nullptr)) {
  // The default limits guard against patterns that explode; this one cannot, and words may be as long as the text.
  pcre2_set_match_limit(context_.get(), std::numeric_limits<uint32_t>::max());
  pcre2_set_heap_limit(context_.get(), std::numeric_limits<uint32_t>::max());
}

absl::StatusOr<size_t> WordSplitter::Scanner::FirstWord(absl::string_view text) {
  const PCRE2_SPTR subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int result = pcre2_match(pattern_, subject, text.size(), 0, PCRE2_NO_UTF_CHECK, match_.get(), context_.get());
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
    result =
        pcre2_match(pattern_, subject, text.size(), 0, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match_.get(), context_.get());
  }
  if (result < 0) return PatternError("cannot split text into words", result);
  return pcre2_get_ovector_pointer(match_.get())[1];
}

}  // namespace kvm
