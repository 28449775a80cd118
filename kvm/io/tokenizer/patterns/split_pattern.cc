#include "kvm/io/tokenizer/patterns/split_pattern.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace kvm {
namespace {

// A match may try this many times the text's length, beside what PCRE2 allows any text, in steps of PCRE2's counter.
constexpr uint64_t kStepsPerByte = 16;
constexpr uint64_t kStepsOfAnyText = 10000000;
constexpr uint32_t kHeapKibibytes = 4 << 20;

std::string ErrorText(int error) {
  unsigned char text[256] = {};
  pcre2_get_error_message(error, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

}  // namespace

absl::StatusOr<SplitPattern> SplitPattern::Compile(const std::string& pattern) {
  struct FreeContext {
    void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  };
  const std::unique_ptr<pcre2_compile_context, FreeContext> context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  size_t position = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &position, context.get());
  if (code == nullptr) return absl::InvalidArgumentError(absl::StrCat("does not compile: ", ErrorText(error)));
  // Where there is no just-in-time compiler, or no memory may be executed, matching is slower but the same.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return SplitPattern(code);
}

SplitPattern::Matcher::Matcher(const SplitPattern& pattern)
    : pattern_(pattern.pattern_.get()),
      match_(pcre2_match_data_create_from_pattern(pattern_, nullptr)),
      context_(pcre2_match_context_create(nullptr)) {
  pcre2_set_heap_limit(context_.get(), kHeapKibibytes);
}

absl::StatusOr<bool> SplitPattern::Matcher::Find(absl::string_view text, size_t from, Range* match) {
  const PCRE2_SPTR subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const uint64_t steps = kStepsOfAnyText + kStepsPerByte * (text.size() - from);
  pcre2_set_match_limit(context_.get(),
                        static_cast<uint32_t>(std::min<uint64_t>(steps, std::numeric_limits<uint32_t>::max())));
  int result = pcre2_match(pattern_, subject, text.size(), from, PCRE2_NO_UTF_CHECK, match_.get(), context_.get());
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
    result = pcre2_match(pattern_, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match_.get(),
                         context_.get());
  }
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0) return absl::ResourceExhaustedError(absl::StrCat("cannot split text: ", ErrorText(result)));
  const size_t* ends = pcre2_get_ovector_pointer(match_.get());
  *match = {ends[0], ends[1]};
  return true;
}

}  // namespace kvm
