#ifndef KVM_TOOLS_FLAGS_MODEL_FLAGS_H_
#define KVM_TOOLS_FLAGS_MODEL_FLAGS_H_

// The flags that all commands with a model share.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kvm/io/model_file.h"
#include "kvm/kernels/dtype.h"
#include "kvm/kernels/thread_pool.h"
#include "kvm/model/language_model.h"
#include "kvm/state/model_identity.h"
#include "tools/cli/console.h"
#include "tools/cli/flag_set.h"

namespace kvm {

struct ModelFlags {
  std::string model;
  int64_t threads;  // as many as there are physical cores
  std::string device = "auto";
  std::string weights = "as-is";
  std::string state = "f32";
  bool chunked_recurrences = false;
  bool provenance = false;
  int64_t seed = 0;

  ModelFlags();
};

// Says on console.err when fewer threads than --threads or its variable asks for can run.
void NoteThreads(const FlagSet& flags, int64_t asked, const ThreadPool& pool, Console& console);

// What --state can be, for commands that show sizes alone; and the dtype of such a name.
std::vector<std::string> StateNames();
DType StateDType(const std::string& name);

// Adds --model, --threads, --device, --weights, --state, --chunked-recurrences and --seed, and the environment
// variables beside them.
void DefineModelFlags(FlagSet& flags, ModelFlags* values);
// Those of them that make sense where the model is already known.
void DefineRuntimeFlags(FlagSet& flags, ModelFlags* values);
// Those without --threads, for commands that compare several numbers of threads.
void DefineComputeFlags(FlagSet& flags, ModelFlags* values);
// --model and --seed alone.
void DefineSourceFlags(FlagSet& flags, ModelFlags* values);

// Adds --provenance, for commands that write states.
void DefineProvenanceFlag(FlagSet& flags, ModelFlags* values);

// The options that the flags ask for. UsageError for values that mean nothing; FailedPrecondition for a device or a
// dtype that this binary lacks; `devices` are those that it has beside the processor.
absl::StatusOr<ModelOptions> ResolveModelOptions(const FlagSet& flags, const ModelFlags& values,
                                                 absl::Span<const Device> devices = {});

struct LoadedModel {
  std::unique_ptr<LanguageModel> model;
  ModelOptions options;
  std::string tokenizer_path;       // empty when the model brings none
  std::vector<int32_t> end_tokens;  // that its config files say, its tokenizer apart
  // What its states belong to, where LoadModel was asked for it.
  std::optional<ModelIdentity> identity;
};

// Random weights that do something without training. ResourceExhausted when they are more than this machine's available
// memory; Interrupted for Ctrl-C.
absl::StatusOr<std::unique_ptr<WeightSource>> DrawRandomWeights(const StackSpec& spec, uint64_t seed, ThreadPool& pool,
                                                                const Console& console);

// Loads --model, which Ctrl-C ends at once: whatever OpenModel takes, or a stack's .textproto with random weights of
// --seed, which is then said on console.err, as notes about the model are. `identify`: fills LoadedModel::identity,
// which may read all weights once more (IdentifyModel).
absl::StatusOr<LoadedModel> LoadModel(const FlagSet& flags, const ModelFlags& values, ExecutionContext& context,
                                      Console& console, bool identify = false);

// Opens a model and says on console.err what is odd about it.
absl::StatusOr<OpenedModel> OpenModelWithNotes(const std::string& path, Console& console);

}  // namespace kvm

#endif  // KVM_TOOLS_FLAGS_MODEL_FLAGS_H_
