#ifndef KVM_IO_TOKENIZER_TOKENIZER_FILES_H_
#define KVM_IO_TOKENIZER_TOKENIZER_FILES_H_

// Where tokenizers lie and which kind a file is; nothing here can read one.

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kvm {

// The tokenizer file in a model's folder: tokenizer.json, or else the first by name of rwkv_vocab*.txt. Empty when the
// folder has neither.
std::string FindTokenizerFile(const std::string& folder);

// The name under which FindTokenizerFile finds a copy of that file: its own where that serves, else, by its content,
// tokenizer.json or rwkv_vocab.txt. Errors name the file.
absl::StatusOr<std::string> TokenizerFileName(const std::string& path);

// Whether a tokenizer's content is the vocabulary of RWKV's World models (world_tokenizer.h) and no tokenizer.json.
bool IsWorldVocabulary(absl::string_view content);

}  // namespace kvm

#endif  // KVM_IO_TOKENIZER_TOKENIZER_FILES_H_
