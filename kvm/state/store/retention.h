#ifndef KVM_STATE_STORE_RETENTION_H_
#define KVM_STATE_STORE_RETENTION_H_

// Which beginnings of a long context stay worth going back to. Between a position and its double a fixed number of
// boundaries is kept, evenly spaced: near the start every one, further out ever fewer. A context of a million tokens
// then has dozens of them and not thousands, and whoever goes back to position q has to feed fewer than max(chunk, q /
// per_doubling) tokens again. The rule looks at the position alone, so contexts that begin alike keep the same
// beginnings.

#include <cstdint>

#include "absl/status/status.h"

namespace kvm {

struct Retention {
  int64_t chunk = 512;       // boundaries are its multiples; > 0
  int64_t per_doubling = 4;  // kept from a boundary to its double: a power of two
  // The newest snapshots of a session are kept besides, wherever they are; ≥ 0.
  int64_t recent = 4;
};

// InvalidArgument naming the member that cannot be.
absl::Status CheckRetention(const Retention& retention);

// Whether a beginning of `position` tokens is kept for good: as long as there is room.
bool IsKept(const Retention& retention, int64_t position);

}  // namespace kvm

#endif  // KVM_STATE_STORE_RETENTION_H_
