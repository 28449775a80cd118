#ifndef KVM_MODEL_STACK_STACK_PROBLEMS_H_
#define KVM_MODEL_STACK_STACK_PROBLEMS_H_

#include <cstddef>
#include <vector>

#include "kvm/model/stack/builtin_kinds.h"
#include "kvm/model/stack/mixer_kind.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/stack/stack_checker.h"

namespace kvm {

// Every bad field of a spec, in the order of stack.proto; of very many the first kMaxStackProblems, and their number
// in `count` unless that is null. Empty for a valid spec. Memory is in proportion to the spec. Sizes are bounded
// (16777216 for a single one, 4096 layers, 2^40 parameters), so that valid specs never overflow int64 arithmetic.
// `kinds` are the kinds of mixer that there may be.
std::vector<StackProblem> FindStackProblems(const StackSpec& spec, size_t* count = nullptr,
                                            const MixerKinds& kinds = BuiltinMixerKinds());

}  // namespace kvm

#endif  // KVM_MODEL_STACK_STACK_PROBLEMS_H_
