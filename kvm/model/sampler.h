#ifndef KVM_MODEL_SAMPLER_H_
#define KVM_MODEL_SAMPLER_H_

// Choosing the next token from logits.

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kvm/state/snapshot/sampler_state.h"

namespace kvm {

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
  // The logits with those of seen tokens made less likely.
  absl::Span<const float> Penalized(absl::Span<const float> logits);
  // A token by the odds that logits and options give. `largest` of the logits.
  int32_t Draw(absl::Span<const float> logits, float largest);
  // Sets all weights to zero but those of the tokens that top_k and top_p leave.
  void KeepMostLikely(absl::Span<const float> logits);

  SamplerState state_;
  std::vector<bool> seen_;

  // Of the token being chosen; kept for their memory.
  std::vector<float> penalized_;
  std::vector<float> weights_;
  std::vector<double> block_sums_;
  std::vector<int32_t> order_;
};

}  // namespace kvm

#endif  // KVM_MODEL_SAMPLER_H_
