#ifndef KVM_STATE_STORE_PREFIX_INDEX_H_
#define KVM_STATE_STORE_PREFIX_INDEX_H_

// Finds the stored token sequences that are beginnings of a given one, by hash. Two sequences may share a hash, so the
// caller compares the tokens of what is found.

#include <cstdint>
#include <deque>
#include <map>
#include <unordered_map>
#include <vector>

#include "absl/types/span.h"

namespace kvm {

// The hashes of all beginnings: element p is that of the first p tokens, and there are tokens.size() + 1. Each is made
// from the one before.
std::vector<uint64_t> PrefixHashes(absl::Span<const int32_t> tokens);

// The hash of all tokens: PrefixHashes(tokens).back().
uint64_t HashTokens(absl::Span<const int32_t> tokens);

// Thread-compatible.
class PrefixIndex {
 public:
  // A sequence of `position` > 0 tokens with this hash is stored as `id`. Several ids may share a hash.
  void Add(int64_t position, uint64_t hash, uint64_t id);
  // Takes a sequence out. It must be there.
  void Remove(int64_t position, uint64_t hash, uint64_t id);
  // As Remove, for a sequence that was evicted: Forgot() tells of it for a while.
  void Forget(int64_t position, uint64_t hash, uint64_t id);

  bool empty() const { return by_position_.empty(); }

  // The ids stored with this position and hash.
  std::vector<uint64_t> At(int64_t position, uint64_t hash) const;

  // The ids of the stored beginnings of the sequence that `hashes` were made of, longest first. The whole of it counts
  // as a beginning.
  std::vector<uint64_t> Candidates(absl::Span<const uint64_t> hashes) const;

  // Whether a candidate is missing because it was evicted. The last kRemembered evictions are known.
  bool Forgot(absl::Span<const uint64_t> hashes) const;
  static constexpr size_t kRemembered = 4096;

 private:
  struct Beginning {
    int64_t position;
    uint64_t hash;
  };

  std::map<int64_t, std::unordered_map<uint64_t, std::vector<uint64_t>>> by_position_;
  std::deque<Beginning> forgotten_;
};

}  // namespace kvm

#endif  // KVM_STATE_STORE_PREFIX_INDEX_H_
