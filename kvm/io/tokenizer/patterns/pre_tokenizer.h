#ifndef KVM_IO_TOKENIZER_PATTERNS_PRE_TOKENIZER_H_
#define KVM_IO_TOKENIZER_PATTERNS_PRE_TOKENIZER_H_

#include <deque>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvm/io/tokenizer/patterns/split_pattern.h"

namespace kvm {

// What becomes of the places that a pattern matches.
enum class SplitBehavior {
  kIsolated,            // words of their own
  kRemoved,             // dropped
  kMergedWithPrevious,  // the end of the word before
  kMergedWithNext,      // the beginning of the word behind
  kContiguous,          // words of their own, those side by side in one
};

struct SplitStep {
  std::string pattern;  // PCRE2's syntax
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // the places between the matches count instead
  // No split: a space before what does not begin with one. The other fields do not count.
  bool add_prefix_space = false;
};

// Cuts text into words, which no token spans, in steps: each cuts further what the one before left. Thread-safe.
//
//   PreTokenizer::Walk walk(pre_tokenizer);
//   RETURN_IF_ERROR(walk.ForEachWord("a b", [&](absl::string_view word) { return Use(word); }));
class PreTokenizer {
 public:
  // InvalidArgument, naming the pattern, for one that does not compile.
  static absl::StatusOr<PreTokenizer> Create(const std::vector<SplitStep>& steps);

  // Goes through one text after another; must not outlive its pre-tokenizer. Not thread-safe.
  class Walk {
   public:
    explicit Walk(const PreTokenizer& pre_tokenizer);

    // Calls `use` with each word of `text`, in order and none empty, until it fails. The words live as long as both
    // `text` and this object.
    absl::Status ForEachWord(absl::string_view text, absl::FunctionRef<absl::Status(absl::string_view)> use);

   private:
    absl::Status Step(size_t step, absl::string_view text, absl::FunctionRef<absl::Status(absl::string_view)> use);
    absl::Status Split(size_t step, absl::string_view text, absl::FunctionRef<absl::Status(absl::string_view)> use);

    const PreTokenizer* pre_tokenizer_;
    std::vector<SplitPattern::Matcher> matchers_;  // by pattern
    std::deque<std::string> prefixed_;             // words that got a space
  };

 private:
  struct CompiledStep {
    SplitStep step;
    size_t pattern;  // in patterns_
  };

  std::vector<CompiledStep> steps_;
  std::vector<SplitPattern> patterns_;
};

}  // namespace kvm

#endif  // KVM_IO_TOKENIZER_PATTERNS_PRE_TOKENIZER_H_
