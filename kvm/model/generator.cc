#include "kvm/model/generator.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kvm/status_macros.h"

namespace kvm {
namespace {

// Tokens of the prompt between two calls of on_prompt.
constexpr int64_t kPromptPiece = 512;

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

absl::Status CheckArguments(const LanguageModel& model, absl::Span<const int32_t> prompt,
                            const GeneratorOptions& options) {
  RETURN_IF_ERROR(ValidateSamplerOptions(options.sampler));
  if (prompt.empty()) return absl::InvalidArgumentError("the prompt has no tokens; expected at least one");
  if (options.max_tokens < 0) {
    return absl::InvalidArgumentError(absl::StrCat("max_tokens is ", options.max_tokens, "; expected at least 0"));
  }
  if (options.num_drawable < 0 || options.num_drawable > model.vocab_size()) {
    return absl::InvalidArgumentError(absl::StrCat("num_drawable is ", options.num_drawable, "; expected 0 to ",
                                                   model.vocab_size(), ", the size of the vocabulary"));
  }
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] < 0 || prompt[i] >= model.vocab_size()) {
      return absl::InvalidArgumentError(absl::StrCat("prompt token ", i, " is ", prompt[i], "; expected 0 to ",
                                                     model.vocab_size() - 1, ", the model's vocabulary"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GeneratorStats> Generate(const LanguageModel& model, SequenceState& sequence,
                                        absl::Span<const int32_t> prompt, const GeneratorOptions& options,
                                        ExecutionContext& context, absl::FunctionRef<bool(int32_t)> on_token) {
  RETURN_IF_ERROR(CheckArguments(model, prompt, options));
  std::vector<float> logits(model.vocab_size());
  const MatrixView<float> logits_row(logits.data(), 1, model.vocab_size());
  const int64_t num_drawable = options.num_drawable == 0 ? model.vocab_size() : options.num_drawable;
  const absl::Span<const float> drawable(logits.data(), static_cast<size_t>(num_drawable));

  GeneratorStats stats;
  const Clock::time_point prompt_start = Clock::now();
  const int64_t prompt_size = static_cast<int64_t>(prompt.size());
  while (stats.prompt_tokens < prompt_size) {
    const int64_t size = std::min(kPromptPiece, prompt_size - stats.prompt_tokens);
    const bool is_last = stats.prompt_tokens + size == prompt_size;
    const absl::Span<const int32_t> piece = prompt.subspan(stats.prompt_tokens, size);
    RETURN_IF_ERROR(model.Extend({{&sequence, piece, is_last ? logits_row : MatrixView<float>()}}, context));
    stats.prompt_tokens += size;
    if (options.on_prompt != nullptr && !options.on_prompt(stats.prompt_tokens)) {
      return absl::CancelledError("the prompt was not taken in whole");
    }
  }
  stats.prompt_seconds = SecondsSince(prompt_start);

  Sampler sampler(options.sampler);
  for (const int32_t token : prompt) sampler.Observe(token);
  const Clock::time_point generation_start = Clock::now();
  while (stats.generated_tokens < options.max_tokens) {
    if (std::none_of(drawable.begin(), drawable.end(), [](float x) { return std::isfinite(x); })) {
      return absl::FailedPreconditionError(absl::StrCat("the model's logits at position ", sequence.position() - 1,
                                                        " are not finite; its weights may be broken"));
    }
    const int32_t token = sampler.Sample(drawable);
    if (token == options.end_token) break;
    ++stats.generated_tokens;
    if (!on_token(token) || stats.generated_tokens == options.max_tokens) break;
    RETURN_IF_ERROR(model.Extend({{&sequence, {&token, 1}, logits_row}}, context));
  }
  stats.generation_seconds = SecondsSince(generation_start);
  return stats;
}

}  // namespace kvm
