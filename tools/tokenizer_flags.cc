#include "tools/tokenizer_flags.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kvm/io/byte_level_bpe.h"

namespace kvm {

void DefineTokenizerFlags(FlagSet& flags, TokenizerFlags* values) {
  flags.String("tokenizer", &values->tokenizer, "FILE", "a Hugging Face tokenizer.json");
  flags.String("model", &values->model, "DIR", "a model folder with a tokenizer.json");
  flags.ReadFromEnvironment("model", "KVM_MODEL");
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const FlagSet& flags, const TokenizerFlags& values) {
  if (!values.tokenizer.empty()) return LoadByteLevelBpe(values.tokenizer);
  if (values.model.empty()) return flags.Wrong("--tokenizer=FILE or --model=DIR is missing");
  const std::string path = absl::StrCat(values.model, "/tokenizer.json");
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = LoadByteLevelBpe(path);
  if (absl::IsNotFound(tokenizer.status())) {
    return absl::NotFoundError(
        absl::StrCat(values.model, ": no tokenizer.json in this folder; name one with --tokenizer=FILE"));
  }
  return tokenizer;
}

}  // namespace kvm
