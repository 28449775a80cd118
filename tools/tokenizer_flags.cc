#include "tools/tokenizer_flags.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kvm/io/model_file.h"
#include "kvm/io/open_tokenizer.h"

namespace kvm {

void DefineTokenizerFlags(FlagSet& flags, TokenizerFlags* values) {
  flags.String("tokenizer", &values->tokenizer, "FILE", "a Hugging Face tokenizer.json or an rwkv_vocab*.txt");
  flags.String("model", &values->model, "PATH", "a model with a tokenizer");
  flags.ReadFromEnvironment("model", "KVM_MODEL");
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const FlagSet& flags, const TokenizerFlags& values) {
  if (!values.tokenizer.empty()) return OpenTokenizer(values.tokenizer);
  if (values.model.empty()) return flags.Wrong("--tokenizer=FILE or --model=DIR is missing");
  const std::string path = FindModelTokenizer(values.model);
  if (path.empty()) {
    return absl::NotFoundError(absl::StrCat(
        values.model, ": no tokenizer.json and no rwkv_vocab*.txt in this folder; name one with --tokenizer=FILE"));
  }
  return OpenTokenizer(path);
}

}  // namespace kvm
