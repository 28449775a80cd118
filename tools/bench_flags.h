#ifndef KVM_TOOLS_BENCH_FLAGS_H_
#define KVM_TOOLS_BENCH_FLAGS_H_

// The flags of `kvm bench`, and what they ask for.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvm/bench/context_bench.h"
#include "kvm/bench/operator_bench.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/model/language_model.h"
#include "tools/cli/console.h"
#include "tools/cli/flag_set.h"
#include "tools/flags/model_flags.h"
#include "tools/flags/stack_flags.h"

namespace kvm {

struct BenchFlags {
  std::vector<std::string> topics;
  ModelFlags model;  // weights may be several, comma-separated; threads is not used
  StackFlags stack;
  std::vector<int64_t> threads;  // 1 and as many as there are physical cores
  std::vector<int64_t> contexts = {512, 4096, 32768};
  int64_t tokens = 131072;
  int64_t rows;
  int64_t piece;
  int64_t decode_tokens;
  int64_t rounds = 5;
  int64_t memory_mib = 512;
  bool json = false;

  BenchFlags();
  bool Asks(const std::string& topic) const;
};

void DefineBenchFlags(FlagSet& flags, BenchFlags* values);

// After FlagSet::Parse: fills in the topics, sorts lists and checks all that can be known before anything is measured.
// UsageError, also for flags of the command line that none of the topics takes; ResourceExhausted; the errors of
// ResolveModelOptions, ResolveStack, and of opening --model.
absl::Status CheckBenchFlags(const FlagSet& flags, BenchFlags* values);

// The sizes of an operator's layer. UsageError.
absl::StatusOr<OperatorBenchOptions> ResolveOperatorBench(const FlagSet& flags, const BenchFlags& values);

ContextBenchOptions ResolveContextBench(const BenchFlags& values);
// Contexts from 8K on, each twice the one before, to --tokens; from an eighth of them when they are few.
ContextBenchOptions ResolveStateBench(const BenchFlags& values);

// Models with what owns them.
struct BenchModels {
  std::vector<std::unique_ptr<LanguageModel>> owned;
  std::vector<BenchModel> models;

  int64_t WeightByteSize() const;
};

// --model, or the stack of the flags with random weights (published 120M KVM-sqrt without any), once for each of
// --weights. Errors as those of LoadModel and ResolveStack; ResourceExhausted when states of `tokens` tokens do not
// fit.
absl::StatusOr<BenchModels> LoadContextModels(const FlagSet& flags, const BenchFlags& values, int64_t tokens,
                                              ExecutionContext& context, Console& console);

// For the state bench: the same stack with --budget, or else with a fixed budget and with one that grows with the
// square root of the context. What is not said of its size is small enough for long contexts.
absl::StatusOr<BenchModels> LoadStateModels(const FlagSet& flags, const BenchFlags& values, ExecutionContext& context,
                                            Console& console);

}  // namespace kvm

#endif  // KVM_TOOLS_BENCH_FLAGS_H_
