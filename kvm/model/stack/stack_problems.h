#ifndef KVM_MODEL_STACK_STACK_PROBLEMS_H_
#define KVM_MODEL_STACK_STACK_PROBLEMS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "kvm/model/stack/stack.pb.h"

namespace kvm {

// A field of a StackSpec that cannot be what it is.
struct StackProblem {
  std::string path;      // "mixers[1].kvm.chunk_len"
  std::string got;       // "0"
  std::string expected;  // "a whole number from 1 to 16777216"
};

// Every bad field of a spec, in the order of stack.proto; of very many the first kMaxStackProblems, and their number
// in `count` unless that is null. Empty for a valid spec. Memory is in proportion to the spec. Sizes are bounded
// (16777216 for a single one, 4096 layers, 2^40 parameters), so that valid specs never overflow int64 arithmetic.
inline constexpr size_t kMaxStackProblems = 100;
std::vector<StackProblem> FindStackProblems(const StackSpec& spec, size_t* count = nullptr);

}  // namespace kvm

#endif  // KVM_MODEL_STACK_STACK_PROBLEMS_H_
