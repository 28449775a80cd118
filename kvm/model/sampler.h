#ifndef KVM_MODEL_SAMPLER_H_
#define KVM_MODEL_SAMPLER_H_

// Choosing the next token from logits.

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kvm/state/sampler_state.h"

namespace kvm {

struct TokenCandidate {
  int32_t token;
  float logit;
  double weight;  // exp(logit − the largest logit): a probability up to a common factor
};

// The same seed and logits give the same tokens on every machine of one kind. Thread-compatible.
class Sampler {
 public:
  // `options` are valid.
  explicit Sampler(const SamplerOptions& options) : Sampler(SamplerState{options, 0}, {}) {}
  // Goes on where another sampler stood, which had seen these tokens, none of them negative.
  Sampler(const SamplerState& state, absl::Span<const int32_t> seen);

  const SamplerState& state() const { return state_; }

  // Counts a token as seen for the repetition penalty.
  void Observe(int32_t token);

  // Draws a token and observes it. logits: [vocab_size], at least one of them finite; NaNs are never drawn.
  int32_t Sample(absl::Span<const float> logits);

 private:
  SamplerState state_;
  std::vector<bool> seen_;
  std::vector<TokenCandidate> candidates_;  // kept for its memory
};

}  // namespace kvm

#endif  // KVM_MODEL_SAMPLER_H_
