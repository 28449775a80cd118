#ifndef KVM_MODEL_STATE_SIZE_H_
#define KVM_MODEL_STATE_SIZE_H_

// What a sequence will cost, before one is begun.

#include <cstdint>

#include "kvm/kernels/dtype.h"
#include "kvm/model/stack/stack.pb.h"

namespace kvm {

struct StateSize {
  int64_t rows = 0;   // compressed rows per key/value head (KVM; of the head with most), else 0
  int64_t bytes = 0;  // what ByteSize() of the state will be
};

// The state of one mixer layer after `context` tokens; `dtype` and `provenance` are those of ModelOptions. The layer's
// shift histories of the MLP and value anchor are not counted. Exact; an upper bound for budgets with append_below.
StateSize MixerStateSize(const MixerSpec& spec, int64_t width, DType dtype, int64_t context, bool provenance = false);

// Whether that is an upper bound.
bool IsUpperBound(const MixerSpec& spec);

// All layers of a stack: rows is the largest of any layer, bytes equals SequenceState::ByteSize(), but ends at 2^61.
StateSize SequenceStateSize(const StackSpec& spec, DType dtype, int64_t context, bool provenance = false);

// Bytes of a full key/value cache of the same stack: every layer keeping keys and values of all tokens, with the heads
// of its attention-style mixer; layers without one count as the first layer that has one, or else as width channels for
// keys and for values.
int64_t FullCacheByteSize(const StackSpec& spec, DType dtype, int64_t context);

}  // namespace kvm

#endif  // KVM_MODEL_STATE_SIZE_H_
