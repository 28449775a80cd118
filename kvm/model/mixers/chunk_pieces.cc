#include "kvm/model/mixers/chunk_pieces.h"

#include <algorithm>
#include <vector>

namespace kvm {

void ForChunkPieces(absl::Span<const SequenceRows> sequences, int64_t chunk_len,
                    absl::FunctionRef<void(absl::Span<const SequenceRows> pieces)> body) {
  std::vector<SequenceRows> rest(sequences.begin(), sequences.end());
  for (std::vector<SequenceRows> pieces;; pieces.clear()) {
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
