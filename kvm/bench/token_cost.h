#ifndef KVM_BENCH_TOKEN_COST_H_
#define KVM_BENCH_TOKEN_COST_H_

// What a token costs a stack, counted from its spec: a basis to judge measured times by.
//
// Operations are those of products with weights, of attention, of routing and of recurrences, a multiply-add being two;
// element by element work is left out. Bytes are those that have to come from memory because they are many: weights
// and the states' rows, windows and matrices.

#include <cstdint>

#include "kvm/kernels/dtype.h"
#include "kvm/model/stack/builtin_kinds.h"
#include "kvm/model/stack/mixer_kind.h"
#include "kvm/model/stack/stack.pb.h"

namespace kvm {

// The mixer of one layer at a token with `position` tokens before it, products with its weights apart. `dtype` is that
// of ModelOptions::state. What happens once a chunk is shared out over its tokens.
MixerCost CostOfMixer(const MixerSpec& mixer, int64_t width, DType dtype, int64_t position,
                      const MixerKinds& kinds = BuiltinMixerKinds());

// Operations of the products with weights, for one token: all layers; and the head, which tokens need whose logits are
// asked for.
double LayerWeightFlop(const StackSpec& spec, const MixerKinds& kinds = BuiltinMixerKinds());
double HeadFlop(const StackSpec& spec);

// All layers' mixers.
MixerCost CostOfMixers(const StackSpec& spec, DType dtype, int64_t position,
                       const MixerKinds& kinds = BuiltinMixerKinds());

// Operations of `count` tokens behind the first `begin`, without logits.
double PrefillFlop(const StackSpec& spec, int64_t begin, int64_t count, const MixerKinds& kinds = BuiltinMixerKinds());

}  // namespace kvm

#endif  // KVM_BENCH_TOKEN_COST_H_
