#include "tools/generate_command.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/tokenizer/end_tokens.h"
#include "kvm/io/tokenizer/tokenizer.h"
#include "kvm/model/generator.h"
#include "kvm/state/snapshot/session.h"
#include "tools/cli/command_status.h"
#include "tools/cli/flag_set.h"
#include "tools/cli/format.h"
#include "tools/cli/output_paths.h"
#include "tools/cli/progress.h"
#include "tools/flags/model_flags.h"
#include "tools/flags/prompt_flags.h"
#include "tools/flags/state_fits.h"
#include "tools/flags/store_flags.h"
#include "tools/session/working_session.h"
#include "tools/stop_filter.h"

namespace kvm {
namespace {

constexpr double kHuge = std::numeric_limits<double>::max();

struct GenerateFlags {
  ModelFlags model;
  PromptFlags prompt;
  SessionFlags session;
  std::vector<std::string> stops;
  SamplerOptions sampler;
  GeneratorOptions options;
};

void DefineFlags(FlagSet& flags, GenerateFlags* values) {
  DefineModelFlags(flags, &values->model);
  DefineProvenanceFlag(flags, &values->model);
  SamplerOptions& sampler = values->sampler;
  DefinePromptFlags(flags, &values->prompt);
  DefineSessionFlags(flags, &values->session);
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

// Whether --save-session may write the file that it names.
absl::Status CheckSessionFile(const FlagSet& flags, const GenerateFlags& values) {
  const std::string& save = values.session.save_session;
  if (save.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckNotOfModel(flags, "save-session", save, values.model.model));
  for (const auto& [name, input] : {std::make_pair("prompt-file", values.prompt.prompt_file),
                                    std::make_pair("tokenizer", values.prompt.tokenizer)}) {
    if (input.empty() || input == "-" || !IsSameFile(save, input)) continue;
    return flags.Wrong(absl::StrCat("--save-session and --", name, " are the same file; expected different ones"));
  }
  return CheckOutput(save, OutputKind::kSnapshot, values.session.force);
}

// Reads and checks the command line.
absl::Status ParseFlags(absl::Span<const std::string> args, FlagSet& flags, GenerateFlags* values) {
  RETURN_IF_ERROR(flags.Parse(args));
  RETURN_IF_ERROR(CheckPromptFlags(flags, values->prompt, !values->session.session.empty()));
  RETURN_IF_ERROR(CheckStoreFlags(flags, values->session.store));
  if (!HasPrompt(flags) && values->session.session.empty()) {
    return flags.Wrong("give one of --prompt, --prompt-file and --prompt-ids, or a --session to go on with");
  }
  if (flags.IsSet("prompt-ids") && !values->stops.empty()) {
    return flags.Wrong("--stop needs text, and --prompt-ids prints ids");
  }
  if (values->session.store.folder.empty()) RETURN_IF_ERROR(CheckSessionFile(flags, *values));
  values->sampler.seed = static_cast<uint64_t>(values->model.seed);
  return absl::OkStatus();
}

// How to draw: as the flags say, the rest as the session did. Nothing when that is what the session did anyway: then it
// goes on where it stood.
std::optional<SamplerOptions> ChooseSampler(const FlagSet& flags, const SamplerOptions& given, const Session& session) {
  if (!session.sampler.has_value()) return given;
  const SamplerOptions& before = session.sampler->options;
  SamplerOptions now = before;
  if (flags.IsSet("temperature")) now.temperature = given.temperature;
  if (flags.IsSet("top-k")) now.top_k = given.top_k;
  if (flags.IsSet("top-p")) now.top_p = given.top_p;
  if (flags.IsSet("min-p")) now.min_p = given.min_p;
  if (flags.IsSet("repetition-penalty")) now.repetition_penalty = given.repetition_penalty;
  if (flags.IsSet("seed")) now.seed = given.seed;
  const bool is_same = now.temperature == before.temperature && now.top_k == before.top_k &&
                       now.top_p == before.top_p && now.min_p == before.min_p &&
                       now.repetition_penalty == before.repetition_penalty && now.seed == before.seed;
  if (is_same) return std::nullopt;
  return now;
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

  bool any() const { return any_; }

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

using Clock = std::chrono::steady_clock;

void PrintSummary(const GeneratorStats& stats, double seconds_to_first, WorkingSession& working, Console& console) {
  const auto rate = [](int64_t tokens, double seconds) {
    return tokens > 0 && seconds > 0 ? FormatRate(static_cast<double>(tokens) / seconds) : std::string("-");
  };
  if (working.continued > 0) console.err << "session: " << FormatCount(working.continued) << " tokens; ";
  console.err << "prompt: " << FormatCount(working.reused + stats.prompt_tokens) << " tokens, ";
  if (working.reuses) {
    console.err << FormatCount(working.reused) << " of them reused"
                << (working.why_nothing.empty() ? "" : absl::StrCat(" (", working.why_nothing, ")")) << ", ";
  }
  console.err << rate(stats.prompt_tokens, stats.prompt_seconds) << " tokens/s; ";
  if (stats.generated_tokens > 0) console.err << "first token after " << FormatSeconds(seconds_to_first) << "; ";
  const SequenceState& sequence = working.session().state;
  console.err << "generated: " << FormatCount(stats.generated_tokens) << " tokens, "
              << rate(stats.generated_tokens, stats.generation_seconds)
              << " tokens/s; state: " << FormatBytes(sequence.ByteSize()) << " for " << FormatCount(sequence.position())
              << " tokens" << std::endl;
}

// Takes the prompt in and prints what follows.
absl::Status GenerateAndSave(const FlagSet& flags, GenerateFlags& values, const LoadedModel& loaded,
                             const Prompt& prompt, ExecutionContext& context, Console& console) {
  // The same whether ids are printed or text: a session may go on either way.
  if (prompt.tokenizer != nullptr) {
    values.options.num_drawable = std::min<int64_t>(prompt.tokenizer->vocab_size(), loaded.model->vocab_size());
    values.options.end_tokens = EndTokensOf(*prompt.tokenizer);
  }
  values.options.end_tokens = JoinEndTokens(values.options.end_tokens, loaded.end_tokens);
  const Clock::time_point start = Clock::now();
  double seconds_to_first = 0;
  ASSIGN_OR_RETURN(WorkingSession working, OpenWorkingSession(values.session, loaded, prompt.tokens, context, console));
  values.options.sampler = ChooseSampler(flags, values.sampler, working.session());
  absl::Status offered;
  const auto offer = [&] {
    if (working.lease.has_value()) offered.Update(OfferAtBoundary(values.session.store, *working.lease));
  };
  const absl::Span<const int32_t> rest = absl::MakeConstSpan(prompt.tokens).subspan(working.reused);
  Progress progress(console, "prompt", "tokens", static_cast<int64_t>(rest.size()));
  values.options.on_prompt = [&](int64_t done) {
    progress.Update(done);
    const bool interrupted = console.interrupted();
    // Where the same prompt is whole, and the next turn begins; or, after Ctrl-C, where the same command goes on.
    if (working.reuses && (interrupted || done == static_cast<int64_t>(rest.size()))) {
      offered.Update(KeepEnd(values.session.store, *working.lease));
    } else {
      offer();
    }
    return !interrupted;
  };
  TokenPrinter printer(prompt.prints_ids ? nullptr : prompt.tokenizer.get(), values.stops, console);
  const auto on_token = [&](int32_t token) {
    if (printer.any()) {
      offer();  // what the prompt ended with was offered already
    } else {
      seconds_to_first = std::chrono::duration<double>(Clock::now() - start).count();
    }
    return printer.Print(token);
  };
  const absl::StatusOr<GeneratorStats> stats =
      Generate(*loaded.model, working.session(), rest, values.options, context, on_token);
  if (stats.ok() || printer.any()) printer.Finish();
  // A session is worth keeping when it has all of the prompt.
  absl::Status saved;
  if (stats.ok()) saved = SaveWorkingSession(values.session, loaded, working, console);
  // Whatever became of the session, prompts may begin with what was read.
  if (working.store != nullptr) SaveSnapshots(*working.store, offered, console);
  RETURN_IF_ERROR(saved);
  if (console.interrupted()) {
    if (working.reuses && absl::IsCancelled(stats.status())) {
      NoteKept(values.session.store, working.session().state.position(), console);
    }
    return Interrupted();
  }
  RETURN_IF_ERROR(stats.status());
  PrintSummary(*stats, seconds_to_first, working, console);
  return absl::OkStatus();
}

absl::Status RunGenerate(absl::Span<const std::string> args, Console& console) {
  FlagSet flags("generate",
                "--model=DIR (--prompt=TEXT | --prompt-file=FILE | --prompt-ids=N,N,... | --session=NAME|FILE)",
                "Continues a prompt, a session or a session and a prompt, and prints the text as it comes. The same\n"
                "seed gives the same text. A session goes on as if it had never been interrupted unless sampling\n"
                "flags say otherwise. Rates and the size of the state go to standard error at the end.");
  GenerateFlags values;
  DefineFlags(flags, &values);
  RETURN_IF_ERROR(ParseFlags(args, flags, &values));

  ExecutionContext context(static_cast<int>(values.model.threads));
  ASSIGN_OR_RETURN(const LoadedModel loaded,
                   LoadModel(flags, values.model, context, console, /*identify=*/values.session.any()));
  ASSIGN_OR_RETURN(const Prompt prompt, ReadPrompt(flags, values.prompt, values.model, loaded, console));
  if (prompt.prints_ids && !values.stops.empty()) {
    return flags.Wrong("--stop needs text, and without a tokenizer ids are printed");
  }
  // Of the prompt alone: the rest may end long before --max-tokens.
  RETURN_IF_ERROR(
      CheckStateFits(loaded.model->spec(), loaded.options.state, 1, static_cast<int64_t>(prompt.tokens.size())));
  return GenerateAndSave(flags, values, loaded, prompt, context, console);
}

}  // namespace

Command GenerateCommand() { return {"generate", "continues a prompt", RunGenerate}; }

}  // namespace kvm
