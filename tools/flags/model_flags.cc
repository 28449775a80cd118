#include "tools/flags/model_flags.h"

#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/identify_model.h"
#include "kvm/io/stack_file.h"
#include "kvm/model/weights/initializer.h"
#include "kvm/model/weights/parameters.h"
#include "tools/cli/command_status.h"
#include "tools/cli/machine.h"
#include "tools/cli/note.h"
#include "tools/flags/state_fits.h"

namespace kvm {
namespace {

constexpr int64_t kMaxThreads = 1024;

// Random models pass on what layers compute, so that trying one out exercises them.
constexpr double kRandomBlockOutputGain = 0.5;

// `source` is the flag or variable.
absl::Status NotOffered(absl::string_view source, absl::string_view value, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat(source, "=", value, " is not offered: ", why));
}

}  // namespace

void NoteThreads(const FlagSet& flags, int64_t asked, const ThreadPool& pool, Console& console) {
  if (!flags.IsSet("threads") || pool.num_threads() >= asked) return;
  PrintNote(console, absl::StrCat(flags.Source("threads"), "=", asked, ": only ", pool.num_threads(),
                                  " can run at a time here; as many are used"));
}

std::vector<std::string> StateNames() { return {"f32", "bf16", "int8"}; }

DType StateDType(const std::string& name) {
  if (name == "int8") return DType::kI8;
  return name == "bf16" ? DType::kBF16 : DType::kF32;
}

ModelFlags::ModelFlags() : threads(NumPhysicalCores()) {}

void DefineRuntimeFlags(FlagSet& flags, ModelFlags* values) {
  flags.Int64("threads", &values->threads, 1, kMaxThreads, "threads to compute with");
  flags.ReadFromEnvironment("threads", "KVM_THREADS");
  DefineComputeFlags(flags, values);
}

void DefineComputeFlags(FlagSet& flags, ModelFlags* values) {
  flags.String("device", &values->device, "cpu|cuda|auto", "where to compute");
  flags.String("weights", &values->weights, "as-is|f32|bf16|int8", "how matrices are kept in memory");
  flags.Choice("state", &values->state, StateNames(),
               "how readout rows and windows are kept in memory; windows are bf16 where rows are int8");
  flags.Bool("chunked-recurrences", &values->chunked_recurrences,
             "RWKV-7, Gated DeltaNet and Kimi Delta take long pieces in chunks; last bits then depend on the pieces");
  flags.ReadFromEnvironment("device", "KVM_DEVICE");
  flags.ReadFromEnvironment("weights", "KVM_WEIGHTS");
  flags.ReadFromEnvironment("state", "KVM_STATE");
  flags.ReadFromEnvironment("chunked-recurrences", "KVM_CHUNKED_RECURRENCES");
}

void DefineSourceFlags(FlagSet& flags, ModelFlags* values) {
  flags.String("model", &values->model, "PATH",
               "model folder, Hugging Face folder, .kvm, .pth, .safetensors, or .textproto for random weights");
  flags.ReadFromEnvironment("model", "KVM_MODEL");
  flags.Int64("seed", &values->seed, 0, std::numeric_limits<int64_t>::max(), "of everything random");
  flags.ReadFromEnvironment("seed", "KVM_SEED");
}

void DefineModelFlags(FlagSet& flags, ModelFlags* values) {
  DefineSourceFlags(flags, values);
  DefineRuntimeFlags(flags, values);
}

void DefineProvenanceFlag(FlagSet& flags, ModelFlags* values) {
  flags.Bool("provenance", &values->provenance,
             "states record which row every token went to, for kvm inspect --map; changes no result");
  flags.ReadFromEnvironment("provenance", "KVM_PROVENANCE");
}

// Null: the processor.
static absl::StatusOr<EngineFactory> ResolveDevice(const FlagSet& flags, const std::string& name,
                                                   absl::Span<const Device> devices) {
  if (name == "cpu" || name == "auto") return EngineFactory(nullptr);
  std::string known = "cpu";
  for (const Device& device : devices) {
    if (device.name == name) return device.engine;
    absl::StrAppend(&known, ", ", device.name);
  }
  if (name == "cuda") return NotOffered(flags.Source("device"), "cuda", "this binary is built without CUDA; use cpu");
  return flags.Wrong(absl::StrCat(flags.Source("device"), "=", name, ": expected ", known, ", cuda or auto"));
}

absl::StatusOr<ModelOptions> ResolveModelOptions(const FlagSet& flags, const ModelFlags& values,
                                                 absl::Span<const Device> devices) {
  ModelOptions options;
  ASSIGN_OR_RETURN(options.engine, ResolveDevice(flags, values.device, devices));
  if (values.weights == "f32") {
    options.weights = WeightType::kF32;
  } else if (values.weights == "bf16") {
    options.weights = WeightType::kBF16;
  } else if (values.weights == "int8") {
    options.weights = WeightType::kI8;
  } else if (values.weights != "as-is") {
    return flags.Wrong(
        absl::StrCat(flags.Source("weights"), "=", values.weights, ": expected as-is, f32, bf16 or int8"));
  }
  options.state = StateDType(values.state);
  options.chunked_recurrences = values.chunked_recurrences;
  options.provenance = values.provenance;
  return options;
}

absl::StatusOr<std::unique_ptr<WeightSource>> DrawRandomWeights(const StackSpec& spec, uint64_t seed, ThreadPool& pool,
                                                                const Console& console) {
  RETURN_IF_ERROR(CheckFitsInMemory("the new weights", sizeof(float) * static_cast<double>(NumParameters(spec)),
                                    "choose a smaller stack"));
  InitializerOptions options;
  options.seed = seed;
  options.block_output_gain = kRandomBlockOutputGain;
  options.cancelled = console.interrupted;
  std::unique_ptr<WeightSource> weights = InitializeWeights(spec, options, pool);
  if (weights == nullptr) return Interrupted();
  return weights;
}

absl::StatusOr<LoadedModel> LoadModel(const FlagSet& flags, const ModelFlags& values, ExecutionContext& context,
                                      Console& console, bool identify) {
  LoadedModel loaded;
  ASSIGN_OR_RETURN(loaded.options, ResolveModelOptions(flags, values, console.devices));
  NoteThreads(flags, values.threads, context.pool, console);
  if (values.model.empty())
    return flags.Wrong("--model is missing: a model folder, a model's file or a stack's .textproto");
  const AbandonableStep loading(console);
  if (absl::EndsWithIgnoreCase(values.model, ".textproto")) {
    ASSIGN_OR_RETURN(const StackSpec spec, ReadStackFile(values.model));
    console.err << values.model << ": a stack without weights; drawing random weights with seed " << values.seed
                << std::endl;
    RETURN_IF_ERROR(CheckStateFits(spec, loaded.options.state, 1, 1));
    ASSIGN_OR_RETURN(const std::unique_ptr<WeightSource> weights,
                     DrawRandomWeights(spec, static_cast<uint64_t>(values.seed), context.pool, console));
    ASSIGN_OR_RETURN(loaded.model, LanguageModel::Create(spec, *weights, loaded.options));
    if (identify) loaded.identity = IdentifyModel(spec, *weights, std::nullopt, loaded.options);
    return loaded;
  }
  ASSIGN_OR_RETURN(const OpenedModel opened, OpenModelWithNotes(values.model, console));
  RETURN_IF_ERROR(CheckStateFits(opened.model.spec, loaded.options.state, 1, 1));
  ASSIGN_OR_RETURN(loaded.model, LanguageModel::Create(opened.model.spec, *opened.model.weights, loaded.options));
  loaded.tokenizer_path = opened.model.tokenizer_path;
  loaded.end_tokens = opened.model.end_tokens;
  if (identify) {
    loaded.identity = IdentifyModel(opened.model.spec, *opened.model.weights, opened.fingerprint, loaded.options);
  }
  return loaded;
}

absl::StatusOr<OpenedModel> OpenModelWithNotes(const std::string& path, Console& console) {
  const AbandonableStep opening(console);
  ASSIGN_OR_RETURN(OpenedModel opened, OpenModel(path));
  for (const std::string& note : opened.model.notes) PrintNote(console, note);
  return opened;
}

}  // namespace kvm
