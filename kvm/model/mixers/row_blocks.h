#ifndef KVM_MODEL_MIXERS_ROW_BLOCKS_H_
#define KVM_MODEL_MIXERS_ROW_BLOCKS_H_

// The rows of a batch cut into pieces that threads take one at a time.

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "kvm/kernels/matrix_view.h"
#include "kvm/kernels/thread_pool.h"

namespace kvm {

inline constexpr int64_t kRowBlock = 16;

// Calls body(begin, count) for blocks of neighbouring rows that cover 0..rows, spread over the pool's threads.
void ForRowBlocks(ThreadPool& pool, int64_t rows, absl::FunctionRef<void(int64_t begin, int64_t count)> body);

// One sequence's rows as a token shift sees them.
struct ShiftRows {
  int64_t first_row = 0;
  int64_t num_tokens = 0;
  absl::Span<const float> previous;  // the row before the first one
};

// out_t = x_t + mix ⊙ (x_{t−1} − x_t) within each sequence.  x, out: [n, d], no overlap; mix: [d].
void ShiftSequences(MatrixView<const float> x, absl::Span<const ShiftRows> sequences, absl::Span<const float> mix,
                    MatrixView<float> out, ThreadPool& pool);

}  // namespace kvm

#endif  // KVM_MODEL_MIXERS_ROW_BLOCKS_H_
