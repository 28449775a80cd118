#include "kvm/io/tokenizer/open_tokenizer.h"

#include "kvm/base/file/mapped_file.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/tokenizer/byte_level_bpe.h"
#include "kvm/io/tokenizer/tokenizer_files.h"
#include "kvm/io/tokenizer/world_tokenizer.h"

namespace kvm {

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
  return IsWorldVocabulary(content) ? ParseWorldVocabulary(content, path) : ParseByteLevelBpe(content, path);
}

}  // namespace kvm
