#include "testing/text_loss.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/status_macros.h"

namespace kvm {
namespace {

// −ln of the softmax's entry.
double Loss(absl::Span<const float> logits, int32_t token) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return std::log(sum) + largest - logits[token];
}

}  // namespace

std::vector<int32_t> ByteTokens(absl::string_view text) {
  std::vector<int32_t> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

absl::StatusOr<double> MeanLoss(const LanguageModel& model, absl::Span<const int32_t> tokens, int64_t window,
                                ExecutionContext& context) {
  const int64_t windows = static_cast<int64_t>(tokens.size()) / window;
  if (windows == 0) {
    return absl::InvalidArgumentError(absl::StrCat("a text of ", tokens.size(), " tokens; expected at least ", window));
  }
  const int64_t count = window - 1, vocab = model.vocab_size();
  std::vector<float> logits(count * vocab);
  double sum = 0;
  for (int64_t w = 0; w < windows; ++w) {
    const absl::Span<const int32_t> ids = tokens.subspan(w * window, window);
    SequenceState sequence = model.NewSequence();
    RETURN_IF_ERROR(
        model.Extend({{&sequence, ids.first(count), MatrixView<float>(logits.data(), count, vocab)}}, context));
    for (int64_t t = 0; t < count; ++t) sum += Loss({&logits[t * vocab], static_cast<size_t>(vocab)}, ids[t + 1]);
  }
  return sum / static_cast<double>(windows * count);
}

}  // namespace kvm
