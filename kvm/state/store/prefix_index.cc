#include "kvm/state/store/prefix_index.h"

#include <algorithm>
#include <cassert>

namespace kvm {
namespace {

uint64_t Chain(uint64_t hash, int32_t token) {
  hash = (hash ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15;
  return hash ^ (hash >> 32);
}

// Not zero: a zero token would leave a zero hash as it is.
constexpr uint64_t kHashOfNothing = 0x6b766d7072656669;

}  // namespace

std::vector<uint64_t> PrefixHashes(absl::Span<const int32_t> tokens) {
  std::vector<uint64_t> hashes;
  hashes.reserve(tokens.size() + 1);
  hashes.push_back(kHashOfNothing);
  for (int32_t token : tokens) hashes.push_back(Chain(hashes.back(), token));
  return hashes;
}

uint64_t HashTokens(absl::Span<const int32_t> tokens) {
  uint64_t hash = kHashOfNothing;
  for (int32_t token : tokens) hash = Chain(hash, token);
  return hash;
}

void PrefixIndex::Add(int64_t position, uint64_t hash, uint64_t id) {
  assert(position > 0);
  by_position_[position][hash].push_back(id);
}

void PrefixIndex::Remove(int64_t position, uint64_t hash, uint64_t id) {
  const auto at_position = by_position_.find(position);
  assert(at_position != by_position_.end());
  const auto with_hash = at_position->second.find(hash);
  assert(with_hash != at_position->second.end());
  std::vector<uint64_t>& ids = with_hash->second;
  ids.erase(std::remove(ids.begin(), ids.end(), id), ids.end());
  if (ids.empty()) at_position->second.erase(with_hash);
  if (at_position->second.empty()) by_position_.erase(at_position);
}

void PrefixIndex::Forget(int64_t position, uint64_t hash, uint64_t id) {
  Remove(position, hash, id);
  if (forgotten_.size() == kRemembered) forgotten_.pop_front();
  forgotten_.push_back({position, hash});
}

std::vector<uint64_t> PrefixIndex::At(int64_t position, uint64_t hash) const {
  const auto at_position = by_position_.find(position);
  if (at_position == by_position_.end()) return {};
  const auto with_hash = at_position->second.find(hash);
  return with_hash == at_position->second.end() ? std::vector<uint64_t>() : with_hash->second;
}

std::vector<uint64_t> PrefixIndex::Candidates(absl::Span<const uint64_t> hashes) const {
  std::vector<uint64_t> candidates;
  // Positions from the longest that fits downwards.
  auto it = by_position_.upper_bound(static_cast<int64_t>(hashes.size()) - 1);
  while (it != by_position_.begin()) {
    --it;
    const auto found = it->second.find(hashes[it->first]);
    if (found != it->second.end()) candidates.insert(candidates.end(), found->second.begin(), found->second.end());
  }
  return candidates;
}

bool PrefixIndex::Forgot(absl::Span<const uint64_t> hashes) const {
  return std::any_of(forgotten_.begin(), forgotten_.end(), [&](const Beginning& beginning) {
    return beginning.position < static_cast<int64_t>(hashes.size()) && hashes[beginning.position] == beginning.hash;
  });
}

}  // namespace kvm
