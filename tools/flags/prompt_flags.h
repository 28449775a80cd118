#ifndef KVM_TOOLS_FLAGS_PROMPT_FLAGS_H_
#define KVM_TOOLS_FLAGS_PROMPT_FLAGS_H_

// The flags that say what a model is to read.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvm/io/tokenizer/tokenizer.h"
#include "tools/cli/console.h"
#include "tools/cli/flag_set.h"
#include "tools/flags/model_flags.h"

namespace kvm {

struct PromptFlags {
  std::string tokenizer;
  std::string prompt;
  std::string prompt_file;
  std::vector<int64_t> prompt_ids;
};

// Adds --tokenizer, --prompt, --prompt-file and --prompt-ids.
void DefinePromptFlags(FlagSet& flags, PromptFlags* values);

// Whether a prompt was given.
bool HasPrompt(const FlagSet& flags);
// UsageError unless at most one was, and for no ids, which only make sense when a session is gone on with.
absl::Status CheckPromptFlags(const FlagSet& flags, const PromptFlags& values, bool continues_session);

struct Prompt {
  std::vector<int32_t> tokens;
  std::unique_ptr<Tokenizer> tokenizer;  // null: none
  bool prints_ids = false;               // for ids, and without a tokenizer
};

// The prompt as tokens of the model's vocabulary, and the tokenizer if the model or the flags have one, for ids as
// well: it says which tokens may be drawn. Without a prompt there are no tokens. InvalidArgument for an empty text, for
// one that the tokenizer refuses, and for ids outside the vocabulary; NotFound for a text without tokenizer; the errors
// of reading files. Ctrl-C ends the process meanwhile. That ids come with a tokenizer of the model's that cannot be
// read is a note on console.err.
absl::StatusOr<Prompt> ReadPrompt(const FlagSet& flags, const PromptFlags& values, const ModelFlags& model_flags,
                                  const LoadedModel& loaded, Console& console);

}  // namespace kvm

#endif  // KVM_TOOLS_FLAGS_PROMPT_FLAGS_H_
