#ifndef KVM_IO_TOKENIZER_BYTES_BYTE_PAIR_MERGER_H_
#define KVM_IO_TOKENIZER_BYTES_BYTE_PAIR_MERGER_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace kvm {

// Byte-pair encoding of one word at a time. Of all neighbours that can merge, those of the merge that was added first
// do, leftmost first, until none can. Time n·log n in the word's length. Thread-safe once all merges are added.
class BytePairMerger {
 public:
  // `byte_ids[b]` is the token of byte b alone; −1 for a byte without one.
  explicit BytePairMerger(const std::array<int32_t, 256>& byte_ids) : byte_ids_(byte_ids) {}

  // Tokens `left` and `right` become `merged`. False, changing nothing, when that pair has a merge.
  bool AddMerge(int32_t left, int32_t right, int32_t merged);

  int32_t byte_id(uint8_t byte) const { return byte_ids_[byte]; }

  // Memory that Encode uses; kept by callers so that it is not allocated for every word.
  struct Scratch {
    struct Symbol {
      int32_t id;
      uint32_t rank;  // of the merge with the next symbol
      uint32_t previous;
      uint32_t next;
    };
    std::vector<Symbol> symbols;
    std::vector<uint64_t> heap;  // rank, then position
  };

  // Appends the word's tokens to `ids`. All its bytes have tokens; it is shorter than 4 GiB.
  void Encode(absl::string_view word, Scratch* scratch, std::vector<int32_t>* ids) const;

 private:
  struct Merge {
    uint32_t rank;
    int32_t merged;
  };

  const Merge* FindMerge(int32_t left, int32_t right) const;
  uint32_t Rank(int32_t left, int32_t right) const;

  std::array<int32_t, 256> byte_ids_;
  absl::flat_hash_map<uint64_t, Merge> merges_;  // by both ids
};

}  // namespace kvm

#endif  // KVM_IO_TOKENIZER_BYTES_BYTE_PAIR_MERGER_H_
