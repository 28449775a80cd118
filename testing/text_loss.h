#ifndef TESTING_TEXT_LOSS_H_
#define TESTING_TEXT_LOSS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvm/model/language_model.h"

namespace kvm {

// A token for every byte, for models over bytes.
std::vector<int32_t> ByteTokens(absl::string_view text);

// The mean of −ln p(token | those before it in its window), in double precision: tokens are cut into windows of
// `window` ≥ 2, each a sequence of its own whose first token is given; what is left at the end is not used.
// InvalidArgument when there is no whole window, and as LanguageModel::Extend.
absl::StatusOr<double> MeanLoss(const LanguageModel& model, absl::Span<const int32_t> tokens, int64_t window,
                                ExecutionContext& context);

}  // namespace kvm

#endif  // TESTING_TEXT_LOSS_H_
