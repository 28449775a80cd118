#ifndef KVM_IO_OPEN_TOKENIZER_H_
#define KVM_IO_OPEN_TOKENIZER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kvm/io/tokenizer.h"

namespace kvm {

// Opens a tokenizer file of either kind, known by its content: a Hugging Face tokenizer.json (byte_level_bpe.h) or the
// vocabulary of RWKV's World models (world_tokenizer.h). Errors name the file.
absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& path);

// The tokenizer file in a model's folder: tokenizer.json, or else the first by name of rwkv_vocab*.txt. Empty when the
// folder has neither.
std::string FindTokenizerFile(const std::string& folder);

// The name under which FindTokenizerFile finds a copy of that file: its own where that serves, else, by its content,
// tokenizer.json or rwkv_vocab.txt.
absl::StatusOr<std::string> TokenizerFileName(const std::string& path);

}  // namespace kvm

#endif  // KVM_IO_OPEN_TOKENIZER_H_
