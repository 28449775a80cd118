#include "kvm/model/generator.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kvm/base/status_macros.h"
#include "kvm/state/snapshot/sampler_state.h"

namespace kvm {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

absl::Status CheckTokens(absl::string_view what, absl::Span<const int32_t> tokens, int64_t vocab_size) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab_size) continue;
    return absl::InvalidArgumentError(absl::StrCat(what, " token ", i, " is ", tokens[i], "; expected 0 to ",
                                                   vocab_size - 1, ", the model's vocabulary"));
  }
  return absl::OkStatus();
}

absl::Status CheckSession(const LanguageModel& model, const Session& session) {
  RETURN_IF_ERROR(session.state.CheckWhole());
  if (static_cast<int64_t>(session.tokens.size()) != session.state.position()) {
    return absl::InvalidArgumentError(absl::StrCat("the session has ", session.tokens.size(), " tokens; expected the ",
                                                   session.state.position(), " that its state has taken in"));
  }
  if (!session.logits.empty() && static_cast<int64_t>(session.logits.size()) != model.vocab_size()) {
    return absl::InvalidArgumentError(absl::StrCat("the session has ", session.logits.size(), " logits; expected ",
                                                   model.vocab_size(), ", the model's vocabulary"));
  }
  return CheckTokens("session", session.tokens, model.vocab_size());
}

absl::Status CheckArguments(const LanguageModel& model, const Session& session, absl::Span<const int32_t> prompt,
                            const SamplerOptions& sampler, const GeneratorOptions& options) {
  RETURN_IF_ERROR(ValidateSamplerOptions(sampler));
  RETURN_IF_ERROR(CheckSession(model, session));
  if (prompt.empty() && session.logits.empty()) {
    return absl::InvalidArgumentError(
        session.tokens.empty() ? "the prompt has no tokens; expected at least one"
                               : "the session has no logits to draw from; expected a prompt of at least one token");
  }
  if (options.max_tokens < 0) {
    return absl::InvalidArgumentError(absl::StrCat("max_tokens is ", options.max_tokens, "; expected at least 0"));
  }
  if (options.num_drawable < 0 || options.num_drawable > model.vocab_size()) {
    return absl::InvalidArgumentError(absl::StrCat("num_drawable is ", options.num_drawable, "; expected 0 to ",
                                                   model.vocab_size(), ", the size of the vocabulary"));
  }
  return CheckTokens("prompt", prompt, model.vocab_size());
}

// Takes tokens in, at least one, and computes the logits that follow. The session is as it was when that fails.
absl::Status Take(const LanguageModel& model, absl::Span<const int32_t> tokens, ExecutionContext& context,
                  Session& session) {
  const bool had_logits = !session.logits.empty();
  session.logits.resize(static_cast<size_t>(model.vocab_size()));
  const MatrixView<float> logits(session.logits.data(), 1, model.vocab_size());
  const absl::Status status = model.Extend({{&session.state, tokens, logits}}, context);
  if (status.ok()) {
    session.tokens.insert(session.tokens.end(), tokens.begin(), tokens.end());
  } else if (!had_logits) {
    session.logits.clear();
  }
  return status;
}

}  // namespace

absl::StatusOr<GeneratorStats> Generate(const LanguageModel& model, Session& session, absl::Span<const int32_t> prompt,
                                        const GeneratorOptions& options, ExecutionContext& context,
                                        absl::FunctionRef<bool(int32_t)> on_token) {
  SamplerState sampler_state = session.sampler.value_or(SamplerState());
  if (options.sampler.has_value()) sampler_state = {*options.sampler, 0};
  RETURN_IF_ERROR(CheckArguments(model, session, prompt, sampler_state.options, options));

  GeneratorStats stats;
  const Clock::time_point prompt_start = Clock::now();
  const int64_t prompt_size = static_cast<int64_t>(prompt.size());
  while (stats.prompt_tokens < prompt_size) {
    const int64_t to_boundary = kPromptPiece - session.state.position() % kPromptPiece;
    const int64_t size = std::min(to_boundary, prompt_size - stats.prompt_tokens);
    RETURN_IF_ERROR(Take(model, prompt.subspan(stats.prompt_tokens, size), context, session));
    stats.prompt_tokens += size;
    if (options.on_prompt != nullptr && !options.on_prompt(stats.prompt_tokens)) {
      return absl::CancelledError("the prompt was not taken in whole");
    }
  }
  stats.prompt_seconds = SecondsSince(prompt_start);

  Sampler sampler(sampler_state, session.tokens);
  session.sampler = sampler_state;
  const int64_t num_drawable = options.num_drawable == 0 ? model.vocab_size() : options.num_drawable;
  const Clock::time_point generation_start = Clock::now();
  bool wants_more = true;
  while (wants_more && stats.generated_tokens < options.max_tokens) {
    const absl::Span<const float> drawable(session.logits.data(), static_cast<size_t>(num_drawable));
    if (std::none_of(drawable.begin(), drawable.end(), [](float x) { return std::isfinite(x); })) {
      return absl::FailedPreconditionError(absl::StrCat("the model's logits at position ", session.state.position() - 1,
                                                        " are not finite; its weights may be broken"));
    }
    const int32_t token = sampler.Sample(drawable);
    const std::vector<int32_t>& ends = options.end_tokens;
    if (std::find(ends.begin(), ends.end(), token) != ends.end()) break;
    ++stats.generated_tokens;
    wants_more = on_token(token);
    RETURN_IF_ERROR(Take(model, {&token, 1}, context, session));
    session.sampler = sampler.state();
  }
  stats.generation_seconds = SecondsSince(generation_start);
  return stats;
}

}  // namespace kvm
