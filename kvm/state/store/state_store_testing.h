#ifndef KVM_STATE_STORE_STATE_STORE_TESTING_H_
#define KVM_STATE_STORE_STATE_STORE_TESTING_H_

// A model for tests of the state store whose sizes can be worked out by hand: its states remember a row for every
// token, and rows depend on all tokens before.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kvm/state/snapshot/session.h"
#include "kvm/state/store/state_store.h"

namespace kvm {

// TestIdentity() and FreshSequence() of snapshot_testing.h.
StoreModel CountingModel();

// Of a session of the counting model with at least one token: 13 for a row and 4 for a token; 28 of shift histories and
// 12 of logits.
constexpr int64_t CountingBytes(int64_t tokens) { return 17 * tokens + 40; }

// Extends a session of the counting model. The result does not depend on how tokens are cut into calls.
void Feed(Session& session, absl::Span<const int32_t> tokens);

// A session that was fed these tokens.
Session Fed(absl::Span<const int32_t> tokens);

// Tokens first, first + 1, …
std::vector<int32_t> Counting(int64_t count, int32_t first = 0);

// A new folder in the test's temporary folder.
std::string NewTestFolder();

// A store of the counting model with chunks of 8 tokens and 4 recent snapshots; without folder unless one is given.
StateStoreOptions CountingOptions(int64_t memory_budget, std::string folder = "");

}  // namespace kvm

#endif  // KVM_STATE_STORE_STATE_STORE_TESTING_H_
