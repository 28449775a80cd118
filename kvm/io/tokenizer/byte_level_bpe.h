#ifndef KVM_IO_TOKENIZER_BYTE_LEVEL_BPE_H_
#define KVM_IO_TOKENIZER_BYTE_LEVEL_BPE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvm/io/tokenizer/tokenizer.h"

namespace kvm {

// A byte-level BPE tokenizer from a Hugging Face tokenizer.json, as GPT-2, Llama 3 and Qwen have them;
// docs/formats/tokenizer_json.md lists what is read. InvalidArgument, naming `source` and the field, for anything else,
// for merges of tokens that the vocabulary lacks, for added tokens whose id the vocabulary gives otherwise, and for ids
// that are negative, repeated or implausibly large. Its Encode refuses text of 4 GiB or more and bytes that the
// vocabulary lacks (few lack any), and gives up on patterns that backtrack without measure (ResourceExhausted).
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseByteLevelBpe(absl::string_view json, const std::string& source);

// Reads the file and parses it.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadByteLevelBpe(const std::string& path);

}  // namespace kvm

#endif  // KVM_IO_TOKENIZER_BYTE_LEVEL_BPE_H_
