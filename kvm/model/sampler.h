#ifndef KVM_MODEL_SAMPLER_H_
#define KVM_MODEL_SAMPLER_H_

// Choosing the next token from logits.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace kvm {

// Applied in this order: repetition penalty, temperature, top_k, top_p, min_p.
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

struct TokenCandidate {
  int32_t token;
  float logit;
  double weight;  // exp(logit − the largest logit): a probability up to a common factor
};

// The same seed and logits give the same tokens on every machine of one kind. Thread-compatible.
class Sampler {
 public:
  // `options` are valid.
  explicit Sampler(const SamplerOptions& options);

  // Counts a token as seen for the repetition penalty.
  void Observe(int32_t token);

  // Draws a token and observes it. logits: [vocab_size], at least one of them finite; NaNs are never drawn.
  int32_t Sample(absl::Span<const float> logits);

 private:
  SamplerOptions options_;
  uint64_t draws_ = 0;
  std::vector<bool> seen_;
  std::vector<TokenCandidate> candidates_;  // kept for its memory
};

}  // namespace kvm

#endif  // KVM_MODEL_SAMPLER_H_
