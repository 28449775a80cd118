#ifndef KVM_STATE_SNAPSHOT_SAMPLER_STATE_H_
#define KVM_STATE_SNAPSHOT_SAMPLER_STATE_H_

#include <cstdint>

#include "absl/status/status.h"

namespace kvm {

// How the next token is chosen from logits. Applied in this order: repetition penalty, temperature, top_k, top_p,
// min_p.
struct SamplerOptions {
  double temperature = 1;         // >= 0; 0 always takes the most likely token (ties: the lowest id)
  int64_t top_k = 0;              // keep the k most likely tokens; 0 keeps all
  double top_p = 1;               // keep the fewest most likely tokens whose probabilities reach top_p; in (0, 1]
  double min_p = 0;               // keep tokens with at least this share of the best one's probability; in [0, 1)
  double repetition_penalty = 1;  // > 0: divides positive and multiplies negative logits of tokens seen before
  uint64_t seed = 0;
};

// InvalidArgument naming the option and its allowed range.
absl::Status ValidateSamplerOptions(const SamplerOptions& options);

// Where a sampler stands, but for the tokens it has seen: those are the sequence's own.
struct SamplerState {
  SamplerOptions options;
  uint64_t draws = 0;  // random numbers taken from the stream of options.seed
};

}  // namespace kvm

#endif  // KVM_STATE_SNAPSHOT_SAMPLER_STATE_H_
