#ifndef KVM_MODEL_GENERATOR_H_
#define KVM_MODEL_GENERATOR_H_

// Prompt in, tokens out.

#include <cstdint>
#include <functional>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kvm/model/language_model.h"
#include "kvm/model/sampler.h"

namespace kvm {

struct GeneratorOptions {
  SamplerOptions sampler;
  int64_t max_tokens = 128;
  int32_t end_token = -1;  // generation ends before this token; −1: none
  // Tokens from here on are never drawn: vocabularies are padded beyond what the tokenizer knows. 0: all may be.
  int64_t num_drawable = 0;
  // Hears how many tokens of the prompt are in, now and then; returns whether to go on. May be null.
  std::function<bool(int64_t)> on_prompt;
};

struct GeneratorStats {
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;  // those handed to on_token
  double prompt_seconds = 0;
  double generation_seconds = 0;
};

// Extends `sequence` by the prompt, then samples tokens one at a time, hands each to `on_token` and extends by it,
// until on_token returns false, end_token is drawn or max_tokens are out. The last token sampled is handed over but not
// taken into the sequence. InvalidArgument for an empty prompt, bad options and whatever Extend refuses; Cancelled when
// on_prompt says so; FailedPrecondition when there are no finite logits to draw from.
absl::StatusOr<GeneratorStats> Generate(const LanguageModel& model, SequenceState& sequence,
                                        absl::Span<const int32_t> prompt, const GeneratorOptions& options,
                                        ExecutionContext& context, absl::FunctionRef<bool(int32_t)> on_token);

}  // namespace kvm

#endif  // KVM_MODEL_GENERATOR_H_
