#include "tools/generate_command.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kvm/io/open_tokenizer.h"
#include "kvm/io/tokenizer.h"
#include "kvm/model/generator.h"
#include "kvm/status_macros.h"
#include "tools/command_status.h"
#include "tools/flag_set.h"
#include "tools/format.h"
#include "tools/model_flags.h"
#include "tools/progress.h"
#include "tools/state_fits.h"
#include "tools/stop_filter.h"
#include "tools/text_input.h"

namespace kvm {
namespace {

constexpr double kHuge = std::numeric_limits<double>::max();

struct GenerateFlags {
  ModelFlags model;
  std::string tokenizer;
  std::string prompt;
  std::string prompt_file;
  std::vector<int64_t> prompt_ids;
  std::vector<std::string> stops;
  GeneratorOptions options;
};

void DefineFlags(FlagSet& flags, GenerateFlags* values) {
  DefineModelFlags(flags, &values->model);
  SamplerOptions& sampler = values->options.sampler;
  flags.String("tokenizer", &values->tokenizer, "FILE", "the tokenizer, where the model folder has none");
  flags.Text("prompt", &values->prompt, "the text to continue");
  flags.String("prompt-file", &values->prompt_file, "FILE", "a file with it; - is standard input");
  flags.Int64s("prompt-ids", &values->prompt_ids, 0, std::numeric_limits<int32_t>::max(),
               "the prompt as token ids; ids are printed, too, and no tokenizer is needed");
  flags.Int64("max-tokens", &values->options.max_tokens, 0, std::numeric_limits<int64_t>::max(), "tokens to generate");
  flags.Double("temperature", &sampler.temperature, 0, kHuge, "0 always takes the most likely token");
  flags.Int64("top-k", &sampler.top_k, 0, std::numeric_limits<int64_t>::max(), "keep the k most likely; 0 keeps all");
  flags.Double("top-p", &sampler.top_p, 0, 1, "keep the most likely tokens that reach this probability",
               FlagSet::Ends::kMax);
  flags.Double("min-p", &sampler.min_p, 0, 1, "keep tokens with this share of the best one's probability",
               FlagSet::Ends::kMin);
  flags.Double("repetition-penalty", &sampler.repetition_penalty, 0, kHuge, "more than 1 discourages repetition",
               FlagSet::Ends::kMax);
  flags.Strings("stop", &values->stops, "TEXT", "end before this text; may be given more than once");
}

// Reads and checks the command line.
absl::Status ParseFlags(absl::Span<const std::string> args, FlagSet& flags, GenerateFlags* values) {
  RETURN_IF_ERROR(flags.Parse(args));
  const int prompts = flags.IsSet("prompt") + flags.IsSet("prompt-file") + flags.IsSet("prompt-ids");
  if (prompts != 1) return flags.Wrong("give one of --prompt, --prompt-file and --prompt-ids");
  if (flags.IsSet("prompt-ids") && !values->stops.empty()) {
    return flags.Wrong("--stop needs text, and --prompt-ids prints ids");
  }
  values->options.sampler.seed = static_cast<uint64_t>(values->model.seed);
  return absl::OkStatus();
}

// The tokenizer, from the flag or the model's folder.
absl::StatusOr<std::unique_ptr<Tokenizer>> FindTokenizer(const GenerateFlags& values, const LoadedModel& loaded) {
  const std::string& path = values.tokenizer.empty() ? loaded.tokenizer_path : values.tokenizer;
  if (path.empty()) {
    return absl::NotFoundError(absl::StrCat(values.model.model,
                                            ": no tokenizer in this model; name one with --tokenizer=FILE or give "
                                            "the prompt as --prompt-ids"));
  }
  return OpenTokenizer(path);
}

absl::StatusOr<std::vector<int32_t>> EncodePrompt(const FlagSet& flags, const GenerateFlags& values,
                                                  const Tokenizer& tokenizer, int64_t vocab_size, Console& console) {
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

// Prints tokens as they come.
class TokenPrinter {
 public:
  // Without a tokenizer prints ids.
  TokenPrinter(const Tokenizer* tokenizer, std::vector<std::string> stops, Console& console)
      : tokenizer_(tokenizer), decoder_(tokenizer), filter_(std::move(stops)), console_(console) {}

  // Returns whether to go on.
  bool Print(int32_t token) {
    if (tokenizer_ == nullptr) {
      console_.out << (any_ ? " " : "") << token << std::flush;
    } else {
      console_.out << filter_.Add(decoder_.Add(token)) << std::flush;
    }
    any_ = true;
    return !filter_.stopped() && console_.out && !console_.interrupted();
  }

  void Finish() {
    if (tokenizer_ != nullptr) console_.out << filter_.Add(decoder_.Finish()) << filter_.Finish();
    console_.out << std::endl;
  }

 private:
  const Tokenizer* tokenizer_;
  StreamDecoder decoder_;
  StopFilter filter_;
  Console& console_;
  bool any_ = false;
};

void PrintSummary(const GeneratorStats& stats, const SequenceState& sequence, Console& console) {
  const auto rate = [](int64_t tokens, double seconds) {
    return seconds > 0 ? FormatRate(static_cast<double>(tokens) / seconds) : std::string("-");
  };
  console.err << "prompt: " << FormatCount(stats.prompt_tokens) << " tokens, "
              << rate(stats.prompt_tokens, stats.prompt_seconds)
              << " tokens/s; generated: " << FormatCount(stats.generated_tokens) << " tokens, "
              << rate(stats.generated_tokens, stats.generation_seconds)
              << " tokens/s; state: " << FormatBytes(sequence.ByteSize()) << " for " << FormatCount(sequence.position())
              << " tokens" << std::endl;
}

absl::Status RunGenerate(absl::Span<const std::string> args, Console& console) {
  FlagSet flags("generate", "--model=DIR (--prompt=TEXT | --prompt-file=FILE | --prompt-ids=N,N,...)",
                "Continues a prompt and prints the text as it comes. The same seed gives the same text. Rates and the\n"
                "size of the state go to standard error at the end.");
  GenerateFlags values;
  DefineFlags(flags, &values);
  RETURN_IF_ERROR(ParseFlags(args, flags, &values));

  ExecutionContext context(static_cast<int>(values.model.threads));
  ASSIGN_OR_RETURN(const LoadedModel loaded, LoadModel(flags, values.model, context, console));
  const LanguageModel& model = *loaded.model;
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<int32_t> prompt(values.prompt_ids.begin(), values.prompt_ids.end());
  if (!flags.IsSet("prompt-ids")) {
    ASSIGN_OR_RETURN(tokenizer, FindTokenizer(values, loaded));
    ASSIGN_OR_RETURN(prompt, EncodePrompt(flags, values, *tokenizer, model.vocab_size(), console));
    values.options.num_drawable = std::min<int64_t>(tokenizer->vocab_size(), model.vocab_size());
    values.options.end_token = tokenizer->end_of_text();
  }

  // Of the prompt alone: the rest may end long before --max-tokens.
  RETURN_IF_ERROR(CheckStateFits(model.spec(), loaded.options.state, 1, static_cast<int64_t>(prompt.size())));

  Progress progress(console, "prompt", "tokens", static_cast<int64_t>(prompt.size()));
  values.options.on_prompt = [&](int64_t done) {
    progress.Update(done);
    return !console.interrupted();
  };
  TokenPrinter printer(tokenizer.get(), values.stops, console);
  SequenceState sequence = model.NewSequence();
  const absl::StatusOr<GeneratorStats> stats =
      Generate(model, sequence, prompt, values.options, context, [&](int32_t token) { return printer.Print(token); });
  if (sequence.position() >= static_cast<int64_t>(prompt.size())) printer.Finish();
  if (console.interrupted()) return Interrupted();
  RETURN_IF_ERROR(stats.status());
  PrintSummary(*stats, sequence, console);
  return absl::OkStatus();
}

}  // namespace

Command GenerateCommand() { return {"generate", "continues a prompt", RunGenerate}; }

}  // namespace kvm
