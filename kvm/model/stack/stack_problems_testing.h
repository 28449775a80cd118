#ifndef KVM_MODEL_STACK_STACK_PROBLEMS_TESTING_H_
#define KVM_MODEL_STACK_STACK_PROBLEMS_TESTING_H_

// Comparing and printing problems, for tests.

#include <ostream>

#include "kvm/model/stack/stack_problems.h"

namespace kvm {

inline bool operator==(const StackProblem& a, const StackProblem& b) {
  return a.path == b.path && a.got == b.got && a.expected == b.expected;
}

inline void PrintTo(const StackProblem& problem, std::ostream* out) {
  *out << problem.path << ": got " << problem.got << ", expected " << problem.expected;
}

}  // namespace kvm

#endif  // KVM_MODEL_STACK_STACK_PROBLEMS_TESTING_H_
