#ifndef KVM_IO_TOKENIZER_OPEN_TOKENIZER_H_
#define KVM_IO_TOKENIZER_OPEN_TOKENIZER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kvm/io/tokenizer/tokenizer.h"

namespace kvm {

// Opens a tokenizer file of either kind, known by its content: a Hugging Face tokenizer.json (byte_level_bpe.h) or the
// vocabulary of RWKV's World models (world_tokenizer.h). Errors name the file. tokenizer_files.h finds such files.
absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& path);

}  // namespace kvm

#endif  // KVM_IO_TOKENIZER_OPEN_TOKENIZER_H_
