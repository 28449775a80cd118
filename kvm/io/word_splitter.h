#ifndef KVM_IO_WORD_SPLITTER_H_
#define KVM_IO_WORD_SPLITTER_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "pcre2.h"

namespace kvm {

// Cuts text where GPT-2 does, so that no token spans two words: English contractions, letters, digits or other signs,
// each with at most one space before it; and runs of white space, which leave their last character to a word that
// follows. Thread-safe.
class WordSplitter {
 public:
  static absl::StatusOr<WordSplitter> Create();

  // Walks over one text, word by word.
  //
  //   WordSplitter::Scanner scanner = splitter.Scan();
  //   while (!text.empty()) {
  //     ASSIGN_OR_RETURN(const size_t length, scanner.FirstWord(text));
  //     Use(text.substr(0, length));
  //     text.remove_prefix(length);
  //   }
  class Scanner {
   public:
    // The length of the first word of `text`, which is UTF-8 and not empty: at least 1.
    absl::StatusOr<size_t> FirstWord(absl::string_view text);

   private:
    friend class WordSplitter;
    explicit Scanner(const pcre2_code* pattern);

    struct Free {
      void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
      void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
    };
    const pcre2_code* pattern_;
    std::unique_ptr<pcre2_match_data, Free> match_;
    std::unique_ptr<pcre2_match_context, Free> context_;
  };

  // Must not outlive this object.
  Scanner Scan() const { return Scanner(pattern_.get()); }

 private:
  struct FreePattern {
    void operator()(pcre2_code* pattern) const { pcre2_code_free(pattern); }
  };
  explicit WordSplitter(pcre2_code* pattern) : pattern_(pattern) {}

  std::unique_ptr<pcre2_code, FreePattern> pattern_;
};

}  // namespace kvm

#endif  // KVM_IO_WORD_SPLITTER_H_
