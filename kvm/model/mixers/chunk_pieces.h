#ifndef KVM_MODEL_MIXERS_CHUNK_PIECES_H_
#define KVM_MODEL_MIXERS_CHUNK_PIECES_H_

#include <cstdint>
#include <memory_resource>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "kvm/model/mixers/mixer.h"

namespace kvm {

// Cuts the rows of every sequence where chunks of its positions end, for mixers whose state changes there. Calls
// body(pieces) with at most one piece of each sequence, until all rows are done; pieces of a sequence come in order.
// `memory` is what the pieces are listed in.
void ForChunkPieces(absl::Span<const SequenceRows> sequences, int64_t chunk_len, std::pmr::memory_resource* memory,
                    absl::FunctionRef<void(absl::Span<const SequenceRows> pieces)> body);

}  // namespace kvm

#endif  // KVM_MODEL_MIXERS_CHUNK_PIECES_H_
