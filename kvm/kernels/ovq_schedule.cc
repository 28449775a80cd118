#include "kvm/kernels/ovq_schedule.h"

#include <algorithm>

#include "kvm/base/check.h"

namespace kvm {

int64_t DictionarySize(const OvqSchedule& schedule, int64_t tokens) {
  CheckAtLeast(schedule.max_centroids, 1, "schedule.max_centroids");
  CheckAtLeast(tokens, 0, "tokens");
  if (tokens == 0) return 0;
  const int64_t max = schedule.max_centroids;
  if (schedule.linear) return std::min(tokens, max);
  // tokens·M/(tokens + M) = M − M²/(tokens + M), whose square stays small however long the text is.
  const int64_t missing = (max * max + tokens + max - 1) / (tokens + max);
  return std::max<int64_t>(1, max - missing);
}

}  // namespace kvm
