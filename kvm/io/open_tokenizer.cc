#include "kvm/io/open_tokenizer.h"

#include "kvm/io/byte_level_bpe.h"
#include "kvm/io/mapped_file.h"
#include "kvm/io/tokenizer_files.h"
#include "kvm/io/world_tokenizer.h"
#include "kvm/status_macros.h"

namespace kvm {

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
  return IsWorldVocabulary(content) ? ParseWorldVocabulary(content, path) : ParseByteLevelBpe(content, path);
}

}  // namespace kvm
