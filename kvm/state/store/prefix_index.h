#ifndef KVM_STATE_STORE_PREFIX_INDEX_H_
#define KVM_STATE_STORE_PREFIX_INDEX_H_

// Finds which stored token sequences are beginnings of a given one, by hash: whoever asks compares the tokens of what
// is found, so that two sequences with one hash are no more than a detour.

#include <cstdint>
#include <deque>
#include <map>
#include <unordered_map>
#include <vector>

#include "absl/types/span.h"

namespace kvm {

// Hashes of all beginnings, each chained to the one before: [p] is that of the first p tokens. tokens.size() + 1 long.
std::vector<uint64_t> PrefixHashes(absl::Span<const int32_t> tokens);

// That of all of them: PrefixHashes(tokens).back().
uint64_t HashTokens(absl::Span<const int32_t> tokens);

// Thread-compatible.
class PrefixIndex {
 public:
  // A sequence of `position` > 0 tokens with this hash is stored as `id`. Several ids may share a hash.
  void Add(int64_t position, uint64_t hash, uint64_t id);
  // Takes it out; it must be there.
  void Remove(int64_t position, uint64_t hash, uint64_t id);
  // The same, but it was given up for want of room and Forgot() will say so, for a while.
  void Forget(int64_t position, uint64_t hash, uint64_t id);

  bool empty() const { return by_position_.empty(); }

  // The ids stored with this position and hash.
  std::vector<uint64_t> At(int64_t position, uint64_t hash) const;

  // The ids of those stored that are beginnings of what `hashes` were made of, up to all of it, longest first.
  std::vector<uint64_t> Candidates(absl::Span<const uint64_t> hashes) const;

  // Whether one that would have been a candidate was forgotten: one of the last kRemembered.
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
