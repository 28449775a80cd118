#include "kvm/model/mixers/chunk_pieces.h"

#include <algorithm>
#include <memory_resource>
#include <vector>

namespace kvm {

void ForChunkPieces(absl::Span<const SequenceRows> sequences, int64_t chunk_len, std::pmr::memory_resource* memory,
                    absl::FunctionRef<void(absl::Span<const SequenceRows> pieces)> body) {
  std::pmr::vector<SequenceRows> rest(sequences.begin(), sequences.end(), memory);
  for (std::pmr::vector<SequenceRows> pieces(memory);; pieces.clear()) {
    for (SequenceRows& s : rest) {
      const int64_t count = std::min(s.num_tokens, chunk_len - s.position % chunk_len);
      if (count == 0) continue;
      pieces.push_back({s.first_row, count, s.position, s.state});
      s.first_row += count;
      s.num_tokens -= count;
      s.position += count;
    }
    if (pieces.empty()) return;
    body(pieces);
  }
}

}  // namespace kvm
