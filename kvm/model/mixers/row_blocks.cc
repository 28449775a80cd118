#include "kvm/model/mixers/row_blocks.h"

#include <algorithm>
#include <memory_resource>
#include <vector>

#include "kvm/kernels/cpu/pointwise/token_shift.h"

namespace kvm {

void ForRowBlocks(ThreadPool& pool, int64_t rows, absl::FunctionRef<void(int64_t begin, int64_t count)> body) {
  pool.ParallelForRanges(rows, kRowBlock, [&](int64_t begin, int64_t end) { body(begin, end - begin); });
}

void ShiftSequences(MatrixView<const float> x, absl::Span<const ShiftRows> sequences, absl::Span<const float> mix,
                    MatrixView<float> out, ThreadPool& pool) {
  struct Block {
    int64_t row, count;
    absl::Span<const float> previous;
  };
  std::pmr::vector<Block> blocks(pool.memory());
  for (const ShiftRows& s : sequences) {
    for (int64_t begin = 0; begin < s.num_tokens; begin += kRowBlock) {
      const int64_t row = s.first_row + begin;
      const int64_t count = std::min(kRowBlock, s.num_tokens - begin);
      blocks.push_back({row, count, begin == 0 ? s.previous : x.row_span(row - 1)});
    }
  }
  pool.ParallelFor(static_cast<int64_t>(blocks.size()), [&](int64_t i) {
    const Block& b = blocks[i];
    TokenShift(x.Rows(b.row, b.count), b.previous, mix, out.Rows(b.row, b.count));
  });
}

}  // namespace kvm
