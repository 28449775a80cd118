#ifndef KVM_TOOLS_MODEL_FLAGS_H_
#define KVM_TOOLS_MODEL_FLAGS_H_

// The flags that all commands with a model share.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvm/model/language_model.h"
#include "tools/console.h"
#include "tools/flag_set.h"

namespace kvm {

struct ModelFlags {
  std::string model;
  int64_t threads;  // as many as there are physical cores
  std::string device = "auto";
  std::string weights = "as-is";
  std::string state = "f32";
  int64_t seed = 0;

  ModelFlags();
};

// Adds --model, --threads, --device, --weights, --state and --seed, and the environment variables beside them.
void DefineModelFlags(FlagSet& flags, ModelFlags* values);
// Those of them that make sense where the model is already known.
void DefineRuntimeFlags(FlagSet& flags, ModelFlags* values);

// The options that the flags ask for. UsageError for values that mean nothing; FailedPrecondition for a device or a
// dtype that this binary lacks.
absl::StatusOr<ModelOptions> ResolveModelOptions(const FlagSet& flags, const ModelFlags& values);

struct LoadedModel {
  std::unique_ptr<LanguageModel> model;
  ModelOptions options;
  std::string tokenizer_path;  // empty when the model brings none
};

// Random weights that do something without training. ResourceExhausted when they are more than this machine's memory;
// Interrupted for Ctrl-C.
absl::StatusOr<std::unique_ptr<WeightSource>> DrawRandomWeights(const StackSpec& spec, uint64_t seed, ThreadPool& pool,
                                                                const Console& console);

// ResourceExhausted when the state of a single token is more than this machine's memory.
absl::Status CheckStateFits(const StackSpec& spec, DType state_dtype);

// Loads --model: a model folder, a Hugging Face folder, or a stack's .textproto with random weights of --seed, which is
// then said on console.err.
absl::StatusOr<LoadedModel> LoadModel(const FlagSet& flags, const ModelFlags& values, ExecutionContext& context,
                                      Console& console);

}  // namespace kvm

#endif  // KVM_TOOLS_MODEL_FLAGS_H_
