#include "kvm/state/snapshot/sampler_state.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace kvm {
namespace {

absl::Status CheckRange(bool ok, const char* name, double value, const char* expected) {
  if (ok) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, "; expected ", expected));
}

}  // namespace

absl::Status ValidateSamplerOptions(const SamplerOptions& options) {
  const absl::Status checks[] = {
      CheckRange(options.temperature >= 0 && std::isfinite(options.temperature), "temperature", options.temperature,
                 "a finite number of at least 0"),
      CheckRange(options.top_k >= 0, "top_k", static_cast<double>(options.top_k), "at least 0 (0 keeps all tokens)"),
      CheckRange(options.top_p > 0 && options.top_p <= 1, "top_p", options.top_p, "more than 0 and at most 1"),
      CheckRange(options.min_p >= 0 && options.min_p < 1, "min_p", options.min_p, "at least 0 and less than 1"),
      CheckRange(options.repetition_penalty > 0 && std::isfinite(options.repetition_penalty), "repetition_penalty",
                 options.repetition_penalty, "a finite number above 0"),
  };
  for (const absl::Status& check : checks) {
    if (!check.ok()) return check;
  }
  return absl::OkStatus();
}

}  // namespace kvm
