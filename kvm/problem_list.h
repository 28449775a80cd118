#ifndef KVM_PROBLEM_LIST_H_
#define KVM_PROBLEM_LIST_H_

#include <string>
#include <vector>

namespace kvm {

// The problems as one line, separated by semicolons: the first hundred, and how many more there are.
std::string JoinProblems(const std::vector<std::string>& problems);

}  // namespace kvm

#endif  // KVM_PROBLEM_LIST_H_
