#ifndef KVM_BENCH_CONTEXT_BENCH_H_
#define KVM_BENCH_CONTEXT_BENCH_H_

// Prefill and decoding of whole models as the context grows. Each sequence is read once, from its first token to the
// largest context. On the way, at each context that is asked for, forks of the state take the last piece of tokens
// before it and then single tokens, again and again: what is measured at 32K tokens needs no second reading of them.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kvm/bench/bench_hooks.h"
#include "kvm/bench/power_law.h"
#include "kvm/bench/spread.h"
#include "kvm/kernels/dtype.h"
#include "kvm/kernels/execution_context.h"
#include "kvm/model/language_model.h"

namespace kvm {

struct BenchModel {
  std::string name;
  const LanguageModel* model = nullptr;
  DType state = DType::kF32;  // that of its ModelOptions
};

struct ContextBenchOptions {
  std::vector<int64_t> contexts;  // ascending, >= 1
  int64_t piece_tokens = 512;     // of one call while prompts are read
  int rounds = 5;
  int64_t decode_tokens = 16;  // in each round, behind the first
  uint64_t seed = 0;           // of the tokens
};

// Seconds with one number of threads; medians over all rounds, which take models and numbers of threads in turn.
struct ThreadTimes {
  int threads = 0;
  Spread piece;        // a piece of ContextResult::piece_tokens that ends at the context
  Spread first_token;  // the token behind it: where a chunk is full it also updates the state
  Spread token;        // each of the tokens after that
};

struct ContextResult {
  int64_t context = 0;
  int64_t piece_tokens = 0;    // fewer than asked for where the context is shorter
  double read_seconds = 0;     // for all tokens so far, with the most threads
  int64_t rows = 0;            // of the layer with most
  int64_t state_bytes = 0;     // of the sequence
  int64_t resident_bytes = 0;  // of the process, while only the sequences themselves are there; 0: unknown
  double piece_flop = 0;       // of a piece
  double token_flop = 0;       // of a single token, logits included
  double token_bytes = 0;      // that a single token reads: weights and state
  std::vector<ThreadTimes> times;
};

struct ModelResult {
  std::string name;
  std::vector<ContextResult> contexts;
  // For every piece on the way: the context behind it, and the seconds that it took / that all took until then; with
  // the most threads. Pieces of another length than piece_tokens are left out of the first.
  std::vector<XY> piece_seconds;
  std::vector<XY> total_seconds;
};

// `threads` differ in their numbers; the last has most. CancelledError when the hooks say so.
absl::StatusOr<std::vector<ModelResult>> BenchContexts(absl::Span<const BenchModel> models,
                                                       const ContextBenchOptions& options,
                                                       absl::Span<ExecutionContext* const> threads,
                                                       const BenchHooks& hooks);

}  // namespace kvm

#endif  // KVM_BENCH_CONTEXT_BENCH_H_
