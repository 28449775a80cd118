#ifndef KVM_TOOLS_CLI_INTERRUPT_H_
#define KVM_TOOLS_CLI_INTERRUPT_H_

namespace kvm {

// From now on the first Ctrl-C (SIGINT, or SIGTERM or SIGHUP) sets a flag, and ends a wait for input; a second one ends
// the process at once. Signals that the process was started to ignore, as by nohup, stay ignored.
void CatchInterrupts();

// Whether there was one.
bool WasInterrupted();

}  // namespace kvm

#endif  // KVM_TOOLS_CLI_INTERRUPT_H_
