#include "tools/flags/tokenizer_flags.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/file/path_check.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/model_file.h"
#include "kvm/io/tokenizer/open_tokenizer.h"
#include "tools/cli/note.h"

namespace kvm {

void DefineTokenizerFlags(FlagSet& flags, TokenizerFlags* values) {
  flags.String("tokenizer", &values->tokenizer, "FILE", "a Hugging Face tokenizer.json or an rwkv_vocab*.txt");
  flags.String("model", &values->model, "PATH", "a model with a tokenizer");
  flags.ReadFromEnvironment("model", "KVM_MODEL");
}

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizerWithNotes(const std::string& path, Console& console) {
  const AbandonableStep opening(console);
  ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, OpenTokenizer(path));
  for (const std::string& note : tokenizer->notes()) PrintNote(console, note);
  return tokenizer;
}

void NoteBrokenTokenizer(const std::string& path, Console& console) {
  if (path.empty()) return;
  const absl::Status status = OpenTokenizerWithNotes(path, console).status();
  if (!status.ok()) PrintNote(console, absl::StrCat("the tokenizer cannot be used: ", status.message()));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const FlagSet& flags, const TokenizerFlags& values,
                                                         Console& console) {
  if (!values.tokenizer.empty()) return OpenTokenizerWithNotes(values.tokenizer, console);
  if (values.model.empty()) return flags.Wrong("--tokenizer=FILE or --model=DIR is missing");
  RETURN_IF_ERROR(CheckPathExists(values.model));
  const std::string path = FindModelTokenizer(values.model);
  if (path.empty()) {
    return absl::NotFoundError(absl::StrCat(
        values.model, ": no tokenizer.json and no rwkv_vocab*.txt in this folder; name one with --tokenizer=FILE"));
  }
  return OpenTokenizerWithNotes(path, console);
}

}  // namespace kvm
