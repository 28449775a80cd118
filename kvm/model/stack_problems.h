#ifndef KVM_MODEL_STACK_PROBLEMS_H_
#define KVM_MODEL_STACK_PROBLEMS_H_

#include <string>
#include <vector>

#include "kvm/model/stack.pb.h"

namespace kvm {

// A field of a StackSpec that cannot be what it is.
struct StackProblem {
  std::string path;      // "mixers[1].kvm.chunk_len"
  std::string got;       // "0"
  std::string expected;  // "a whole number from 1 to 16777216"
};

// Every bad field of a spec, in the order of stack.proto. Empty for a valid spec. Sizes are bounded (16777216 for a
// single one, 4096 layers, 2^40 parameters), so that valid specs never overflow int64 arithmetic.
std::vector<StackProblem> FindStackProblems(const StackSpec& spec);

}  // namespace kvm

#endif  // KVM_MODEL_STACK_PROBLEMS_H_
