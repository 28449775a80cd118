#ifndef KVM_IO_TOKENIZER_WORLD_TOKENIZER_H_
#define KVM_IO_TOKENIZER_WORLD_TOKENIZER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvm/io/tokenizer/tokenizer.h"

namespace kvm {

// The tokenizer of RWKV's World models from its vocabulary file (rwkv_vocab_v20230424.txt; see
// docs/formats/world_vocabulary.md): at each place of the text the longest token that it continues with. Its ids are
// always 0 to 65535; 0 ends a text and has no bytes, nor have ids that the file leaves out. InvalidArgument, naming
// `source` and the line, for lines of another form, wrong lengths, ids outside 1 to 65535, and ids or tokens that come
// twice. Its Encode refuses text that begins somewhere with no token; files with all 256 bytes leave none.
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseWorldVocabulary(absl::string_view text, const std::string& source);

}  // namespace kvm

#endif  // KVM_IO_TOKENIZER_WORLD_TOKENIZER_H_
