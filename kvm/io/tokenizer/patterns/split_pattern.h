#ifndef KVM_IO_TOKENIZER_PATTERNS_SPLIT_PATTERN_H_
#define KVM_IO_TOKENIZER_PATTERNS_SPLIT_PATTERN_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "pcre2.h"

namespace kvm {

// A compiled PCRE2 pattern (UTF mode, lines ended by "\n"). Thread-safe.
class SplitPattern {
 public:
  // InvalidArgument with PCRE2's message for a pattern that does not compile.
  static absl::StatusOr<SplitPattern> Compile(const std::string& pattern);

  // Half-open, in bytes of the text.
  struct Range {
    size_t begin;
    size_t end;
  };

  // Finds the matches in one text after another; must not outlive its pattern. Not thread-safe.
  class Matcher {
   public:
    explicit Matcher(const SplitPattern& pattern);

    // Finds the first match in `text`, which is UTF-8, that begins at `from` or later; what lies before `from` is
    // seen by look-behind. False when there is none. ResourceExhausted when the pattern backtracks without measure.
    absl::StatusOr<bool> Find(absl::string_view text, size_t from, Range* match);

   private:
    struct Free {
      void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
      void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
    };
    const pcre2_code* pattern_;
    std::unique_ptr<pcre2_match_data, Free> match_;
    std::unique_ptr<pcre2_match_context, Free> context_;
  };

 private:
  struct Free {
    void operator()(pcre2_code* pattern) const { pcre2_code_free(pattern); }
  };
  explicit SplitPattern(pcre2_code* pattern) : pattern_(pattern) {}

  std::unique_ptr<pcre2_code, Free> pattern_;
};

}  // namespace kvm

#endif  // KVM_IO_TOKENIZER_PATTERNS_SPLIT_PATTERN_H_
