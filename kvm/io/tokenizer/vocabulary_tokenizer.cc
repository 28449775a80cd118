#include "kvm/io/tokenizer/vocabulary_tokenizer.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace kvm {

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(const SentencePieceVocabulary&,
                                                                      const std::string& source) {
  return absl::UnimplementedError(absl::StrCat(source, ": vocabularies of this kind are not read yet"));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeByteLevelTokenizer(const ByteLevelVocabulary&,
                                                                  const std::string& source) {
  return absl::UnimplementedError(absl::StrCat(source, ": vocabularies of this kind are not read yet"));
}

std::vector<std::string> KnownPres() { return {}; }

}  // namespace kvm
