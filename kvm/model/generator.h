#ifndef KVM_MODEL_GENERATOR_H_
#define KVM_MODEL_GENERATOR_H_

// Prompt in, tokens out.
//
//   Session session;
//   session.state = model.NewSequence();
//   RETURN_IF_ERROR(Generate(model, session, prompt, options, context, on_token).status());
//   RETURN_IF_ERROR(Generate(model, session, {}, options, context, on_token).status());   // goes on

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kvm/model/language_model.h"
#include "kvm/model/sampler.h"
#include "kvm/state/snapshot/session.h"

namespace kvm {

// Prompts are taken in pieces that end at multiples of so many positions.
inline constexpr int64_t kPromptPiece = 512;

struct GeneratorOptions {
  // Without a value the session's own sampler goes on, or one with default options when it has none.
  std::optional<SamplerOptions> sampler;
  int64_t max_tokens = 128;
  std::vector<int32_t> end_tokens;  // generation ends before the first of these; ids of no token are allowed
  // Tokens from here on are never drawn: vocabularies are padded beyond what the tokenizer knows. 0: all may be.
  int64_t num_drawable = 0;
  // Hears after every piece how many tokens of the prompt are in; returns whether to go on. The session is then whole
  // and may be forked or saved: at multiples of kPromptPiece, which every session with the same beginning passes. May
  // be null.
  std::function<bool(int64_t)> on_prompt;
};

struct GeneratorStats {
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;  // those handed to on_token
  double prompt_seconds = 0;
  double generation_seconds = 0;
};

// Extends the session by the prompt, then samples tokens one at a time, hands each to `on_token` and extends by it,
// until on_token returns false, one of end_tokens is drawn or max_tokens are out. Afterwards, whatever the outcome, the
// session holds every token that was taken in, the logits that follow and the sampler that drew: a session that goes on
// (with an empty prompt and no options.sampler) draws what one call would have drawn, to the bit. When the outcome is
// OK, every token handed to on_token was taken in, the last one too; the end token was not. InvalidArgument for a
// prompt without tokens when the session has no logits, a session of another model, bad options and whatever Extend
// refuses; Cancelled when on_prompt says so; FailedPrecondition when there are no finite logits to draw from.
absl::StatusOr<GeneratorStats> Generate(const LanguageModel& model, Session& session, absl::Span<const int32_t> prompt,
                                        const GeneratorOptions& options, ExecutionContext& context,
                                        absl::FunctionRef<bool(int32_t)> on_token);

}  // namespace kvm

#endif  // KVM_MODEL_GENERATOR_H_
