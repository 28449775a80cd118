#ifndef KVM_IO_TOKENIZER_JSON_H_
#define KVM_IO_TOKENIZER_JSON_H_

// Hugging Face's tokenizer.json, as far as byte-level BPE goes; for byte_level_bpe.cc alone.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kvm {

struct BpeSpec {
  struct Merge {
    int32_t left;
    int32_t right;
    int32_t merged;
  };
  struct AddedToken {
    std::string content;
    int32_t id;
    bool normalized;  // looked for after those that are not
  };

  std::vector<std::string> token_bytes;  // by id; empty for ids that no token has
  std::array<int32_t, 256> byte_ids;     // the token of each byte alone, or −1
  std::vector<Merge> merges;             // most urgent first; no pair twice
  std::vector<AddedToken> added_tokens;  // no content twice
  bool add_prefix_space = true;          // before text that does not begin with a space
  bool use_regex = true;                 // cut text into words first
};

// Errors as ParseByteLevelBpe, which see.
absl::StatusOr<BpeSpec> ParseTokenizerJson(absl::string_view json, const std::string& source);

}  // namespace kvm

#endif  // KVM_IO_TOKENIZER_JSON_H_
