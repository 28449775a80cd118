#ifndef KVM_IO_TOKENIZER_VOCABULARY_TOKENIZER_H_
#define KVM_IO_TOKENIZER_VOCABULARY_TOKENIZER_H_

// Tokenizers from plain lists of tokens, as GGUF files hold them. docs/formats/vocabularies.md says what they do.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvm/io/tokenizer/tokenizer.h"

namespace kvm {

// What a token is, in SentencePiece's and GGUF's numbers.
enum class PieceType : int32_t {
  kNormal = 1,
  kUnknown = 2,      // for characters that have no token; one at most
  kControl = 3,      // "<s>"; Encode finds it in text before all else
  kUserDefined = 4,  // taken whole wherever it stands in text, the longest first
  kUnused = 5,       // in text it falls apart into the tokens that it was merged from
  kByte = 6,         // "<0x0A>"
};

// What goes with every vocabulary. Ids are places in its list.
struct VocabularyIds {
  std::vector<int32_t> before_text;  // Tokenizer::ids_before_text
  std::vector<int32_t> after_text;
  int32_t end_of_text = -1;  // −1: the first of the usual names that is there
};

// GGUF's "llama": a SentencePiece vocabulary of the kind BPE, of Llama 1 and 2, TinyLlama, Mistral, Gemma.
struct SentencePieceVocabulary {
  absl::Span<const absl::string_view> pieces;  // UTF-8; "▁" stands for a space
  absl::Span<const float> scores;              // one a piece: of all pairs of neighbours, the best piece merges first
  absl::Span<const int32_t> types;             // one a piece, PieceType; empty: normal ones alone
  // Before a text, and before what follows a control token, goes a space, which decoding drops.
  bool add_space_prefix = true;
  VocabularyIds ids;
};

// Everything is copied. InvalidArgument, beginning with `source` and naming the token, for lists of unequal length, a
// score that is not a number, types that do not exist, tokens that are empty, not UTF-8, over 1024 bytes or there
// twice, byte tokens that name no byte, and ids outside of the list. Characters that have no token become their bytes'
// tokens where all 256 are there, else the unknown token, one for a run; without either Encode refuses them.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(const SentencePieceVocabulary& vocabulary,
                                                                      const std::string& source);

// GGUF's "gpt2": byte-level BPE, of GPT-2, Llama 3, SmolLM2, Qwen and Mistral's newer models.
struct ByteLevelVocabulary {
  absl::Span<const absl::string_view> tokens;  // in the byte alphabet of GPT-2: "Ġthe"
  absl::Span<const int32_t> types;             // one a token; empty: normal ones alone
  absl::Span<const absl::string_view> merges;  // "left right", the most urgent first
  std::string pre;                             // how text is cut into words: "llama-bpe", "qwen2"; KnownPres
  bool add_space_prefix = false;
  VocabularyIds ids;
};

// As above; refused are too a `pre` that is not known, by its name, and merges of tokens that are not there.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeByteLevelTokenizer(const ByteLevelVocabulary& vocabulary,
                                                                  const std::string& source);

// The names that `pre` may have, ascending.
std::vector<std::string> KnownPres();

}  // namespace kvm

#endif  // KVM_IO_TOKENIZER_VOCABULARY_TOKENIZER_H_
