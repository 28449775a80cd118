#ifndef KVM_TOOLS_STACK_REPORT_H_
#define KVM_TOOLS_STACK_REPORT_H_

// What a stack is, in words.

#include <string>

#include "kvm/kernels/dtype.h"
#include "kvm/model/stack.pb.h"
#include "nlohmann/json.hpp"

namespace kvm {

// Layers, widths, mixers and parameters: a few lines.
std::string DescribeStack(const StackSpec& spec);

// The same and the sizes of state_report.h, for programs.
nlohmann::json StackToJson(const StackSpec& spec, DType state_dtype);

}  // namespace kvm

#endif  // KVM_TOOLS_STACK_REPORT_H_
