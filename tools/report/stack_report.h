#ifndef KVM_TOOLS_REPORT_STACK_REPORT_H_
#define KVM_TOOLS_REPORT_STACK_REPORT_H_

// What a stack is, in words.

#include <cstdint>
#include <string>

#include "kvm/kernels/dtype.h"
#include "kvm/model/stack/stack.pb.h"
#include "nlohmann/json.hpp"

namespace kvm {

// Layers, widths, mixers and parameters: a few lines.
std::string DescribeStack(const StackSpec& spec);

// The rows that a growing budget has before its formula asks for as many, when that is so after the first update of the
// state; 0: the formula holds from there on.
int64_t LeastRows(const KvmSpec& kvm, const BudgetSpec& budget);

// The kind of a mixer: "KVM", "RWKV-7", "attention over 512 tokens".
std::string MixerKind(const MixerSpec& mixer, int64_t width);

// The same and the sizes of state_report.h, for programs.
nlohmann::json StackToJson(const StackSpec& spec, DType state_dtype);

}  // namespace kvm

#endif  // KVM_TOOLS_REPORT_STACK_REPORT_H_
