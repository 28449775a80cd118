#include "tools/flags/prompt_flags.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvm/base/status_macros.h"
#include "tools/cli/note.h"
#include "tools/cli/text_input.h"
#include "tools/flags/tokenizer_flags.h"

namespace kvm {
namespace {

absl::StatusOr<std::vector<int32_t>> Encode(const FlagSet& flags, const PromptFlags& values, const Tokenizer& tokenizer,
                                            int64_t vocab_size, Console& console) {
  std::string text = values.prompt;
  std::string source = "--prompt";
  if (flags.IsSet("prompt-file")) {
    source = values.prompt_file == "-" ? "standard input" : values.prompt_file;
    ASSIGN_OR_RETURN(text, ReadTextInput(values.prompt_file, console));
  }
  if (text.empty())
    return absl::InvalidArgumentError(absl::StrCat(source, ": the prompt is empty; expected some text"));
  absl::StatusOr<std::vector<int32_t>> ids = tokenizer.Encode(text);
  if (!ids.ok()) return absl::Status(ids.status().code(), absl::StrCat(source, ": ", ids.status().message()));
  for (const int32_t id : *ids) {
    if (id >= vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat(
          source, ": the tokenizer has ", tokenizer.vocab_size(), " tokens and gives id ", id,
          ", the model's vocabulary has ", vocab_size, "; expected the tokenizer that the model was made with"));
    }
  }
  return ids;
}

absl::StatusOr<std::vector<int32_t>> CheckedIds(const std::vector<int64_t>& ids, int64_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < vocab_size) continue;
    return absl::InvalidArgumentError(absl::StrCat("--prompt-ids: prompt token ", i, " is ", ids[i], "; expected 0 to ",
                                                   vocab_size - 1, ", the model's vocabulary"));
  }
  return std::vector<int32_t>(ids.begin(), ids.end());
}

}  // namespace

void DefinePromptFlags(FlagSet& flags, PromptFlags* values) {
  flags.String("tokenizer", &values->tokenizer, "FILE", "the tokenizer, where the model folder has none");
  flags.Text("prompt", &values->prompt, "the text to continue");
  flags.String("prompt-file", &values->prompt_file, "FILE", "a file with it; - is standard input");
  flags.Int64s("prompt-ids", &values->prompt_ids, 0, std::numeric_limits<int32_t>::max(),
               "the prompt as token ids; ids are printed, too, and no tokenizer is needed; may be empty for --session");
  flags.AllowEmpty("prompt-ids");
}

bool HasPrompt(const FlagSet& flags) {
  return flags.IsSet("prompt") || flags.IsSet("prompt-file") || flags.IsSet("prompt-ids");
}

absl::Status CheckPromptFlags(const FlagSet& flags, const PromptFlags& values, bool continues_session) {
  const int prompts = flags.IsSet("prompt") + flags.IsSet("prompt-file") + flags.IsSet("prompt-ids");
  if (prompts > 1) return flags.Wrong("give one of --prompt, --prompt-file and --prompt-ids");
  if (flags.IsSet("prompt-ids") && values.prompt_ids.empty() && !continues_session) {
    return flags.Wrong("--prompt-ids is empty; expected ids to begin with");
  }
  return absl::OkStatus();
}

absl::StatusOr<Prompt> ReadPrompt(const FlagSet& flags, const PromptFlags& values, const ModelFlags& model_flags,
                                  const LoadedModel& loaded, Console& console) {
  const AbandonableStep reading(console);
  Prompt prompt;
  const std::string& path = values.tokenizer.empty() ? loaded.tokenizer_path : values.tokenizer;
  if (flags.IsSet("prompt-ids")) {
    prompt.prints_ids = true;
    ASSIGN_OR_RETURN(prompt.tokens, CheckedIds(values.prompt_ids, loaded.model->vocab_size()));
    if (path.empty()) return prompt;
    absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = OpenTokenizerWithNotes(path, console);
    if (tokenizer.ok()) {
      prompt.tokenizer = *std::move(tokenizer);
    } else if (values.tokenizer.empty()) {
      // Ids are how one does without it.
      PrintNote(console, absl::StrCat("the tokenizer cannot be used, so that every token may be drawn: ",
                                      tokenizer.status().message()));
    } else {
      return tokenizer.status();
    }
    return prompt;
  }
  if (path.empty()) {
    prompt.prints_ids = true;
    if (!HasPrompt(flags)) return prompt;
    return absl::NotFoundError(absl::StrCat(model_flags.model,
                                            ": no tokenizer in this model; name one with --tokenizer=FILE or give "
                                            "the prompt as --prompt-ids"));
  }
  ASSIGN_OR_RETURN(prompt.tokenizer, OpenTokenizerWithNotes(path, console));
  if (!HasPrompt(flags)) return prompt;
  ASSIGN_OR_RETURN(prompt.tokens, Encode(flags, values, *prompt.tokenizer, loaded.model->vocab_size(), console));
  return prompt;
}

}  // namespace kvm
