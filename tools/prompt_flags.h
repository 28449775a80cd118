#ifndef KVM_TOOLS_PROMPT_FLAGS_H_
#define KVM_TOOLS_PROMPT_FLAGS_H_

// The flags that say what a model is to read.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvm/io/tokenizer.h"
#include "tools/console.h"
#include "tools/flag_set.h"
#include "tools/model_flags.h"

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
// UsageError unless at most one was.
absl::Status CheckPromptFlags(const FlagSet& flags);

struct Prompt {
  std::vector<int32_t> tokens;
  std::unique_ptr<Tokenizer> tokenizer;  // null: ids are read and printed
};

// The prompt as tokens of the model's vocabulary. Without a prompt there are no tokens, and a tokenizer if the model or
// the flags have one. InvalidArgument for an empty text, for one that the tokenizer refuses, and for ids outside the
// vocabulary; NotFound for a text without tokenizer; the errors of reading files.
absl::StatusOr<Prompt> ReadPrompt(const FlagSet& flags, const PromptFlags& values, const ModelFlags& model_flags,
                                  const LoadedModel& loaded, Console& console);

}  // namespace kvm

#endif  // KVM_TOOLS_PROMPT_FLAGS_H_
