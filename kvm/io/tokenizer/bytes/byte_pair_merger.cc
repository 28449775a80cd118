#include "kvm/io/tokenizer/bytes/byte_pair_merger.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "kvm/base/check.h"

namespace kvm {
namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();  // no merge, or no neighbour

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Lower ranks first, then lower positions.
uint64_t HeapKey(uint32_t rank, uint32_t position) { return static_cast<uint64_t>(rank) << 32 | position; }

}  // namespace

bool BytePairMerger::AddMerge(int32_t left, int32_t right, int32_t merged) {
  const Merge merge = {static_cast<uint32_t>(merges_.size()), merged};
  return merges_.emplace(PairKey(left, right), merge).second;
}

const BytePairMerger::Merge* BytePairMerger::FindMerge(int32_t left, int32_t right) const {
  const auto found = merges_.find(PairKey(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

uint32_t BytePairMerger::Rank(int32_t left, int32_t right) const {
  const Merge* merge = FindMerge(left, right);
  return merge == nullptr ? kNone : merge->rank;
}

// The symbols are a doubly linked list in one array; a merge widens the left symbol and unlinks the right one. The heap
// may hold keys of pairs that are no more: those whose rank is not the one that the symbol at that position has now.
void BytePairMerger::Encode(absl::string_view word, Scratch* scratch, std::vector<int32_t>* ids) const {
  Check(word.size() < kNone, "a word of less than 4 GiB");
  const uint32_t size = static_cast<uint32_t>(word.size());
  std::vector<Scratch::Symbol>& symbols = scratch->symbols;
  std::vector<uint64_t>& heap = scratch->heap;
  symbols.resize(size);
  heap.clear();
  int32_t lowest_id = 0;
  for (uint32_t i = 0; i < size; ++i) {
    symbols[i] = {byte_ids_[static_cast<uint8_t>(word[i])], kNone, i == 0 ? kNone : i - 1,
                  i + 1 == size ? kNone : i + 1};
    lowest_id = std::min(lowest_id, symbols[i].id);
  }
  CheckAtLeast(lowest_id, 0, "the token of a byte");
  for (uint32_t i = 0; i + 1 < size; ++i) {
    symbols[i].rank = Rank(symbols[i].id, symbols[i + 1].id);
    if (symbols[i].rank != kNone) heap.push_back(HeapKey(symbols[i].rank, i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());

  const auto update_rank = [&](uint32_t left) {
    const uint32_t right = symbols[left].next;
    symbols[left].rank = right == kNone ? kNone : Rank(symbols[left].id, symbols[right].id);
    if (symbols[left].rank == kNone) return;
    heap.push_back(HeapKey(symbols[left].rank, left));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    const uint64_t key = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const uint32_t position = static_cast<uint32_t>(key);
    Scratch::Symbol& left = symbols[position];
    if (left.rank != static_cast<uint32_t>(key >> 32)) continue;
    Scratch::Symbol& right = symbols[left.next];
    left.id = FindMerge(left.id, right.id)->merged;
    right.rank = kNone;
    left.next = right.next;
    if (left.next != kNone) symbols[left.next].previous = position;
    update_rank(position);
    if (left.previous != kNone) update_rank(left.previous);
  }
  for (uint32_t i = 0; i < size && i != kNone; i = symbols[i].next) ids->push_back(symbols[i].id);
}

}  // namespace kvm
