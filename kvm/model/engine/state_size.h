#ifndef KVM_MODEL_ENGINE_STATE_SIZE_H_
#define KVM_MODEL_ENGINE_STATE_SIZE_H_

// What a sequence will cost, before one is begun.

#include <cstdint>

#include "kvm/kernels/dtype.h"
#include "kvm/model/stack/builtin_kinds.h"
#include "kvm/model/stack/mixer_kind.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/state/state_size.h"

namespace kvm {

// The state of one mixer layer after `context` tokens; `dtype` and `provenance` are those of ModelOptions. The layer's
// shift histories of the MLP and value anchor are not counted. Exact; an upper bound for budgets with append_below.
StateSize MixerStateSize(const MixerSpec& spec, int64_t width, DType dtype, int64_t context, bool provenance = false,
                         const MixerKinds& kinds = BuiltinMixerKinds());

// Whether that is an upper bound.
bool IsUpperBound(const MixerSpec& spec, const MixerKinds& kinds = BuiltinMixerKinds());

// All layers of a stack: rows is the largest of any layer, bytes equals SequenceState::ByteSize(), but ends at 2^61.
StateSize SequenceStateSize(const StackSpec& spec, DType dtype, int64_t context, bool provenance = false,
                            const MixerKinds& kinds = BuiltinMixerKinds());

// Bytes of a full key/value cache of the same stack: every layer keeping keys and values of all tokens, with the heads
// of its attention-style mixer; layers without one count as the first layer that has one, or else as width channels for
// keys and for values.
int64_t FullCacheByteSize(const StackSpec& spec, DType dtype, int64_t context,
                          const MixerKinds& kinds = BuiltinMixerKinds());

}  // namespace kvm

#endif  // KVM_MODEL_ENGINE_STATE_SIZE_H_
