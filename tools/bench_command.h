#ifndef KVM_TOOLS_BENCH_COMMAND_H_
#define KVM_TOOLS_BENCH_COMMAND_H_

#include "tools/cli/command.h"

namespace kvm {

// `kvm bench`: measured rates beside this machine's measured ceilings.
Command BenchCommand();

}  // namespace kvm

#endif  // KVM_TOOLS_BENCH_COMMAND_H_
