#ifndef KVM_TOOLS_REPORT_STACK_REPORT_H_
#define KVM_TOOLS_REPORT_STACK_REPORT_H_

// What a stack is, in words.

#include <cstdint>
#include <string>

#include "kvm/kernels/dtype.h"
#include "kvm/model/stack/builtin_kinds.h"
#include "kvm/model/stack/mixer_kind.h"
#include "kvm/model/stack/stack.pb.h"
#include "nlohmann/json.hpp"

namespace kvm {

// Layers, widths, mixers and parameters: a few lines.
std::string DescribeStack(const StackSpec& spec, const MixerKinds& kinds = BuiltinMixerKinds());

// The kind of a mixer: "KVM", "RWKV-7", "attention over 512 tokens".
std::string MixerTitle(const MixerSpec& mixer, int64_t width, const MixerKinds& kinds = BuiltinMixerKinds());

// The same and the sizes of state_report.h, for programs.
nlohmann::json StackToJson(const StackSpec& spec, DType state_dtype, const MixerKinds& kinds = BuiltinMixerKinds());

}  // namespace kvm

#endif  // KVM_TOOLS_REPORT_STACK_REPORT_H_
