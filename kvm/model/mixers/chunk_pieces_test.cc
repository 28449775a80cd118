#include "kvm/model/mixers/chunk_pieces.h"

#include <array>
#include <vector>

#include "gtest/gtest.h"

namespace kvm {
namespace {

// {first_row, num_tokens, position} of the pieces of each call.
using Call = std::vector<std::array<int64_t, 3>>;

std::vector<Call> Calls(const std::vector<SequenceRows>& sequences, int64_t chunk_len) {
  std::vector<Call> calls;
  ForChunkPieces(sequences, chunk_len, std::pmr::get_default_resource(), [&](absl::Span<const SequenceRows> pieces) {
    calls.emplace_back();
    for (const SequenceRows& p : pieces) calls.back().push_back({p.first_row, p.num_tokens, p.position});
  });
  return calls;
}

TEST(ForChunkPiecesTest, CutsAtChunkEndsOfPositions) {
  // Rows 0..9 stand at positions 3..12, rows 10..13 at 4..7.
  EXPECT_EQ(Calls({{0, 10, 3, nullptr}, {10, 4, 4, nullptr}}, 4),
            (std::vector<Call>{{{0, 1, 3}, {10, 4, 4}}, {{1, 4, 4}}, {{5, 4, 8}}, {{9, 1, 12}}}));
}

TEST(ForChunkPiecesTest, ChunksOfOneAndLongChunks) {
  EXPECT_EQ(Calls({{7, 2, 0, nullptr}}, 1), (std::vector<Call>{{{7, 1, 0}}, {{8, 1, 1}}}));
  EXPECT_EQ(Calls({{7, 2, 0, nullptr}}, 100), (std::vector<Call>{{{7, 2, 0}}}));
  EXPECT_TRUE(Calls({}, 4).empty());
}

}  // namespace
}  // namespace kvm
