#ifndef KVM_IO_TOKENIZER_TOKENIZER_JSON_H_
#define KVM_IO_TOKENIZER_TOKENIZER_JSON_H_

// Hugging Face's tokenizer.json, as far as byte-level BPE goes; for byte_level_bpe.cc alone.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvm/io/tokenizer/added_tokens.h"
#include "kvm/io/tokenizer/patterns/pre_tokenizer.h"
#include "kvm/io/tokenizer/tokenizer_json_steps.h"

namespace kvm {

struct BpeSpec {
  struct Merge {
    int32_t left;
    int32_t right;
    int32_t merged;
  };

  std::vector<std::string> token_bytes;  // by id; empty for ids that no token has
  std::array<int32_t, 256> byte_ids;     // the token of each byte alone, or −1
  std::vector<Merge> merges;             // most urgent first; no pair twice
  // Words that become one token whatever the merges say.
  absl::flat_hash_map<std::string, int32_t> whole_words;
  std::vector<AddedToken> early_tokens;  // found in the text as it is given
  std::vector<AddedToken> late_tokens;   // found in what those leave, once it is normalized; no content twice in both
  bool nfc = false;
  std::vector<SplitStep> splits;
  AroundText around;
  std::vector<std::string> notes;  // as Tokenizer::notes
};

// Errors as ParseByteLevelBpe, which see.
absl::StatusOr<BpeSpec> ParseTokenizerJson(absl::string_view json, const std::string& source);

}  // namespace kvm

#endif  // KVM_IO_TOKENIZER_TOKENIZER_JSON_H_
