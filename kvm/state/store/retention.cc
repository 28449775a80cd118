#include "kvm/state/store/retention.h"

#include "absl/strings/str_cat.h"

namespace kvm {

absl::Status CheckRetention(const Retention& retention) {
  if (retention.chunk <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("retention: chunk is ", retention.chunk, ", expected > 0"));
  }
  if (retention.per_doubling <= 0 || (retention.per_doubling & (retention.per_doubling - 1)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("retention: per_doubling is ", retention.per_doubling, ", expected a power of two"));
  }
  if (retention.recent < 0) {
    return absl::InvalidArgumentError(absl::StrCat("retention: recent is ", retention.recent, ", expected >= 0"));
  }
  return absl::OkStatus();
}

bool IsKept(const Retention& retention, int64_t position) {
  if (position <= 0 || position % retention.chunk != 0) return false;
  const int64_t boundary = position / retention.chunk;
  // Twice the spacing once the boundaries up to here are twice as many as one doubling may have.
  int64_t spacing = 1;
  while (boundary / spacing >= 2 * retention.per_doubling) spacing *= 2;
  return boundary % spacing == 0;
}

}  // namespace kvm
