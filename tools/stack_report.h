#ifndef KVM_TOOLS_STACK_REPORT_H_
#define KVM_TOOLS_STACK_REPORT_H_

// What a stack is and costs, in words.

#include <string>

#include "kvm/kernels/dtype.h"
#include "kvm/model/stack.pb.h"
#include "nlohmann/json.hpp"

namespace kvm {

// Layers, widths, mixers and parameters: a few lines.
std::string DescribeStack(const StackSpec& spec);

// Bytes of one sequence at contexts of 1K to 1M tokens, beside a full cache: a table.
std::string StateSizeTable(const StackSpec& spec, DType state_dtype);

// Both, for programs.
nlohmann::json StackToJson(const StackSpec& spec, DType state_dtype);

}  // namespace kvm

#endif  // KVM_TOOLS_STACK_REPORT_H_
