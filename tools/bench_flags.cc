#include "tools/bench_flags.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/model_file.h"
#include "kvm/io/stack_file.h"
#include "kvm/kernels/thread_pool.h"
#include "kvm/model/engine/state_size.h"
#include "tools/cli/format.h"
#include "tools/cli/machine.h"
#include "tools/flags/state_fits.h"
#include "tools/report/stack_report.h"

namespace kvm {
namespace {

constexpr int64_t kMaxThreads = 1024;
constexpr int64_t kMaxTokens = int64_t{1} << 30;
constexpr int64_t kMaxCount = 1 << 20;

constexpr const char* kTopics[] = {"operators", "prefill", "decode", "state"};

void SortUnique(std::vector<int64_t>* values) {
  std::sort(values->begin(), values->end());
  values->erase(std::unique(values->begin(), values->end()), values->end());
}

// Of a sequence of `tokens` tokens, and of the fork that it has at times.
double StateBytes(const StackSpec& spec, DType state, int64_t tokens) {
  return 2 * static_cast<double>(SequenceStateSize(spec, state, tokens).bytes);
}

absl::Status CheckStatesFit(double bytes, int64_t tokens) {
  return CheckFitsInMemory(absl::StrCat("states of ", FormatCount(tokens), " tokens"), bytes,
                           "choose smaller contexts or a smaller stack");
}

absl::Status CheckStatesFit(const BenchModels& models, int64_t tokens) {
  double bytes = 0;
  for (const BenchModel& m : models.models) bytes += StateBytes(m.model->spec(), m.state, tokens);
  return CheckStatesFit(bytes, tokens);
}

void Append(std::string name, LoadedModel loaded, BenchModels* models) {
  models->models.push_back({std::move(name), loaded.model.get(), loaded.options.state});
  models->owned.push_back(std::move(loaded.model));
}

absl::StatusOr<LoadedModel> MakeModel(const FlagSet& flags, const ModelFlags& values, const StackSpec& spec,
                                      ExecutionContext& context, Console& console) {
  LoadedModel loaded;
  ASSIGN_OR_RETURN(loaded.options, ResolveModelOptions(flags, values));
  RETURN_IF_ERROR(CheckStateFits(spec, loaded.options.state, 1, 1));
  ASSIGN_OR_RETURN(const std::unique_ptr<WeightSource> weights,
                   DrawRandomWeights(spec, static_cast<uint64_t>(values.seed), context.pool, console));
  ASSIGN_OR_RETURN(loaded.model, LanguageModel::Create(spec, *weights, loaded.options));
  return loaded;
}

// The stack of prefill and decode, when there is no --model.
StackFlags ContextStack(const StackFlags& given) {
  StackFlags stack = given;
  if (stack.spec.empty() && stack.pattern.empty()) stack.pattern = "K";
  return stack;
}

// The stack of state, with what was not said of its size small enough for long contexts.
StackFlags StateStack(const FlagSet& flags, const StackFlags& given) {
  StackFlags stack = given;
  const int64_t period = std::max<int64_t>(1, static_cast<int64_t>(stack.pattern.size()));
  if (!flags.IsSet("layers")) stack.layers = (4 + period - 1) / period * period;
  if (!flags.IsSet("width")) stack.width = 512;
  if (!flags.IsSet("vocab")) stack.vocab = 4096;
  return ContextStack(stack);
}

// A flag, and the topics that it means something to. Those that all of them take are not here.
struct FlagUse {
  const char* flag;
  std::vector<std::string> topics;
  bool is_of_stack = false;
};

std::vector<FlagUse> FlagUses() {
  std::vector<FlagUse> uses = {{"rows", {"operators"}},
                               {"contexts", {"prefill", "decode"}},
                               {"tokens", {"state"}},
                               {"decode-tokens", {"decode", "state"}},
                               {"piece", {"prefill", "decode", "state"}}};
  for (const char* flag : {"model", "seed", "device", "weights", "state", "chunked-recurrences", "spec", "pattern"}) {
    uses.push_back({flag, {"prefill", "decode", "state"}});
  }
  // Operators take the sizes of a layer alone.
  for (const char* flag : {"layers", "kv-heads", "rwkv-heads", "window-chunks", "sinks", "sliding-window", "budget",
                           "rotary", "residual-scale", "token-shift"}) {
    uses.push_back({flag, {"prefill", "decode", "state"}, true});
  }
  return uses;
}

bool Measures(const BenchFlags& values, const std::vector<std::string>& topics) {
  return std::any_of(topics.begin(), topics.end(), [&](const std::string& topic) { return values.Asks(topic); });
}

// Variables are set for all commands; what the command line says is meant for this one.
absl::Status CheckAllAreUsed(const FlagSet& flags, const BenchFlags& values) {
  for (const FlagUse& use : FlagUses()) {
    if (!flags.IsSet(use.flag) || flags.IsFromEnvironment(use.flag)) continue;
    if (!Measures(values, use.topics)) {
      return flags.Wrong(absl::StrCat("--", use.flag, " changes nothing of ", absl::StrJoin(values.topics, ", "),
                                      "; it is for ", absl::StrJoin(use.topics, ", ")));
    }
    if (use.is_of_stack && !values.model.model.empty()) {
      return flags.Wrong(
          absl::StrCat("--", use.flag, " goes without ", flags.Source("model"), ", which brings its stack"));
    }
  }
  return absl::OkStatus();
}

// Checks before anything is measured what models are loaded for later: that their files can be opened, and that the
// states of stacks fit in memory.
absl::Status CheckModels(const FlagSet& flags, const BenchFlags& values) {
  if (!Measures(values, {"prefill", "decode", "state"})) return absl::OkStatus();
  double num_models = 0;
  DType state = DType::kF32;
  for (const absl::string_view weights : absl::StrSplit(values.model.weights, ',')) {
    ModelFlags of_model = values.model;
    of_model.weights = std::string(weights);
    ASSIGN_OR_RETURN(const ModelOptions options, ResolveModelOptions(flags, of_model));
    state = options.state;
    ++num_models;
  }
  const std::string& model = values.model.model;
  if (absl::EndsWithIgnoreCase(model, ".textproto")) return ReadStackFile(model).status();
  if (!model.empty()) return OpenModel(model).status();
  const auto check_stack = [&](const StackFlags& stack, int64_t tokens) -> absl::Status {
    ASSIGN_OR_RETURN(const StackSpec spec, ResolveStack(flags, stack));
    return CheckStatesFit(num_models * StateBytes(spec, state, tokens), tokens);
  };
  if (Measures(values, {"prefill", "decode"})) {
    RETURN_IF_ERROR(check_stack(ContextStack(values.stack), values.contexts.back()));
  }
  if (values.Asks("state")) RETURN_IF_ERROR(check_stack(StateStack(flags, values.stack), values.tokens));
  return absl::OkStatus();
}

// "K, 12 layers of width 768, budget sqrt:16".
std::string NameOfStack(const StackFlags& stack, const StackSpec& spec) {
  if (!stack.spec.empty()) return stack.spec;
  std::string name = absl::StrCat(stack.pattern, ", ", FormatCounted(stack.layers, "layer"), " of width ", stack.width);
  for (const MixerSpec& mixer : spec.mixers()) {
    if (!mixer.has_kvm()) continue;
    absl::StrAppend(&name, ", budget ", stack.budget);
    const int64_t least = LeastRows(mixer.kvm(), mixer.kvm().budget());
    if (least > 0) absl::StrAppend(&name, " (at least ", FormatCounted(least, "row"), ")");
  }
  return name;
}

}  // namespace

BenchFlags::BenchFlags()
    : threads({1, NumPhysicalCores()}),
      rows(OperatorSizes().rows),
      piece(ContextBenchOptions().piece_tokens),
      decode_tokens(ContextBenchOptions().decode_tokens) {}

bool BenchFlags::Asks(const std::string& topic) const {
  return std::find(topics.begin(), topics.end(), topic) != topics.end();
}

void DefineBenchFlags(FlagSet& flags, BenchFlags* values) {
  flags.Positionals(&values->topics);
  flags.Int64s("threads", &values->threads, 1, kMaxThreads, "numbers of threads to compare; state takes the largest");
  flags.ReadFromEnvironment("threads", "KVM_THREADS");
  flags.Int64s("contexts", &values->contexts, 1, kMaxTokens, "prefill, decode: tokens to measure at");
  flags.Int64("tokens", &values->tokens, 1, kMaxTokens, "state: tokens to read");
  flags.Int64("rounds", &values->rounds, 1, kMaxCount, "times that everything is measured");
  flags.Int64("decode-tokens", &values->decode_tokens, 1, kMaxCount, "single tokens of a round");
  flags.Int64("piece", &values->piece, 1, kMaxCount, "tokens of one call while a prompt is read");
  flags.Int64("rows", &values->rows, 1, kMaxCount, "operators: KVM rows that a chunk is routed into");
  flags.Int64("memory-mib", &values->memory_mib, 1, kMaxCount,
              "MiB that bandwidth is measured over; far more than the caches");
  flags.Bool("json", &values->json, "print everything as JSON");
  DefineSourceFlags(flags, &values->model);
  DefineComputeFlags(flags, &values->model);
  DefineStackFlags(flags, &values->stack);
}

absl::Status CheckBenchFlags(const FlagSet& flags, BenchFlags* values) {
  for (const std::string& topic : values->topics) {
    if (std::find(std::begin(kTopics), std::end(kTopics), topic) == std::end(kTopics)) {
      return flags.Wrong(
          absl::StrCat("'", topic, "' cannot be measured; expected operators, prefill, decode or state"));
    }
  }
  if (values->topics.empty()) values->topics = {"operators", "prefill", "decode"};
  // Each type of weights once, in the order given.
  std::vector<std::string> weights;
  for (const absl::string_view type : absl::StrSplit(values->model.weights, ',')) {
    if (std::find(weights.begin(), weights.end(), type) == weights.end()) weights.emplace_back(type);
  }
  values->model.weights = absl::StrJoin(weights, ",");
  SortUnique(&values->threads);
  SortUnique(&values->contexts);
  if (values->threads.empty()) return flags.Wrong("--threads: expected a number at least");
  if (values->contexts.empty()) return flags.Wrong("--contexts: expected a number at least");
  RETURN_IF_ERROR(CheckFitsInMemory("buffers of that many --memory-mib",
                                    static_cast<double>(values->memory_mib) * (1 << 20), "choose fewer"));
  RETURN_IF_ERROR(CheckAllAreUsed(flags, *values));
  if (!values->model.model.empty() && Measures(*values, {"prefill", "decode", "state"})) {
    const std::string source = flags.Source("model");
    for (const char* name : {"spec", "pattern"}) {
      if (flags.IsSet(name)) return flags.Wrong(absl::StrCat("--", name, " and ", source, " exclude each other"));
    }
    // Operators take their sizes from them.
    if (!values->Asks("operators")) {
      const std::string why = absl::StrCat("goes without ", source, ", which brings its stack");
      RETURN_IF_ERROR(CheckNoBackboneFlags(flags, why));
      RETURN_IF_ERROR(CheckNoMixerFlags(flags, why));
    }
  }
  if (values->Asks("operators")) RETURN_IF_ERROR(ResolveOperatorBench(flags, *values).status());
  return CheckModels(flags, *values);
}

absl::StatusOr<OperatorBenchOptions> ResolveOperatorBench(const FlagSet& flags, const BenchFlags& values) {
  const StackFlags stack = WithHeads(values.stack);
  if (stack.width % stack.heads != 0) {
    return flags.Wrong(absl::StrCat("--width=", stack.width, " is no multiple of --heads=", stack.heads));
  }
  OperatorBenchOptions options;
  options.sizes.width = stack.width;
  options.sizes.mlp_width =
      std::max<int64_t>(1, static_cast<int64_t>(stack.mlp_expansion * static_cast<double>(stack.width)) / 32 * 32);
  options.sizes.vocab = stack.vocab;
  options.sizes.heads = stack.heads;
  options.sizes.chunk = stack.chunk;
  options.sizes.rows = values.rows;
  options.sizes.centroids = stack.centroids;
  options.sizes.ovq_chunk = stack.ovq_chunk;
  options.rounds = static_cast<int>(values.rounds);
  options.memory_bytes = values.memory_mib << 20;
  // All cases are made before one runs. Copies of the matrices; vectors of all cases for a token of a chunk, and for a
  // row, in widths of the stack.
  constexpr double kMatrices = 16, kChunkWidths = 60, kChunkMlpWidths = 6, kRowWidths = 8;
  const double width = static_cast<double>(stack.width), mlp_width = static_cast<double>(options.sizes.mlp_width);
  const double matrices = kMatrices * width * mlp_width + width * static_cast<double>(stack.vocab);
  const double chunks = static_cast<double>(stack.chunk) * (kChunkWidths * width + kChunkMlpWidths * mlp_width);
  const double rows = static_cast<double>(values.rows) * kRowWidths * width;
  RETURN_IF_ERROR(CheckFitsInMemory("matrices, chunks and rows of these sizes",
                                    sizeof(float) * (matrices + chunks + rows),
                                    "choose a smaller --width, --mlp-expansion, --vocab, --chunk or --rows"));
  return options;
}

ContextBenchOptions ResolveContextBench(const BenchFlags& values) {
  ContextBenchOptions options;
  options.contexts = values.contexts;
  options.piece_tokens = values.piece;
  options.rounds = static_cast<int>(values.rounds);
  options.decode_tokens = values.decode_tokens;
  options.seed = static_cast<uint64_t>(values.model.seed);
  return options;
}

ContextBenchOptions ResolveStateBench(const BenchFlags& values) {
  constexpr int64_t kFirst = 8192;
  ContextBenchOptions options = ResolveContextBench(values);
  options.contexts.clear();
  for (int64_t next = std::min(kFirst, (values.tokens + 7) / 8); next < values.tokens; next *= 2) {
    options.contexts.push_back(next);
  }
  options.contexts.push_back(values.tokens);
  return options;
}

int64_t BenchModels::WeightByteSize() const {
  int64_t bytes = 0;
  for (const auto& model : owned) bytes += model->WeightByteSize();
  return bytes;
}

absl::StatusOr<BenchModels> LoadContextModels(const FlagSet& flags, const BenchFlags& values, int64_t tokens,
                                              ExecutionContext& context, Console& console) {
  BenchModels models;
  for (const absl::string_view weights : absl::StrSplit(values.model.weights, ',')) {
    ModelFlags of_model = values.model;
    of_model.weights = std::string(weights);
    const std::string suffix = absl::StrCat("; weights ", weights, ", state ", of_model.state);
    if (!of_model.model.empty()) {
      ASSIGN_OR_RETURN(LoadedModel loaded, LoadModel(flags, of_model, context, console));
      Append(of_model.model + suffix, std::move(loaded), &models);
      continue;
    }
    const StackFlags stack = ContextStack(values.stack);
    ASSIGN_OR_RETURN(const StackSpec spec, ResolveStack(flags, stack));
    ASSIGN_OR_RETURN(LoadedModel loaded, MakeModel(flags, of_model, spec, context, console));
    Append(NameOfStack(stack, spec) + suffix, std::move(loaded), &models);
  }
  RETURN_IF_ERROR(CheckStatesFit(models, tokens));
  return models;
}

absl::StatusOr<BenchModels> LoadStateModels(const FlagSet& flags, const BenchFlags& values, ExecutionContext& context,
                                            Console& console) {
  BenchFlags small = values;
  small.stack = StateStack(flags, values.stack);
  // Only KVM layers have a budget.
  const bool has_no_budget = !small.stack.pattern.empty() && !absl::StrContains(small.stack.pattern, 'K');
  if (!values.model.model.empty() || !values.stack.spec.empty() || flags.IsSet("budget") || has_no_budget) {
    return LoadContextModels(flags, small, values.tokens, context, console);
  }
  BenchModels models;
  for (const char* budget : {"fixed:256", "sqrt:16"}) {
    small.stack.budget = budget;
    ASSIGN_OR_RETURN(BenchModels more, LoadContextModels(flags, small, values.tokens, context, console));
    for (size_t i = 0; i < more.models.size(); ++i) {
      models.models.push_back(std::move(more.models[i]));
      models.owned.push_back(std::move(more.owned[i]));
    }
  }
  RETURN_IF_ERROR(CheckStatesFit(models, values.tokens));
  return models;
}

}  // namespace kvm
