#ifndef KVM_TOOLS_CLI_INTERRUPT_H_
#define KVM_TOOLS_CLI_INTERRUPT_H_

namespace kvm {

// From now on the first Ctrl-C (SIGINT, or SIGTERM or SIGHUP) sets a flag, and ends a wait for input; a second one ends
// the process at once. Signals that the process was started to ignore, as by nohup, stay ignored.
void CatchInterrupts();

// Whether there was one.
bool WasInterrupted();

// While it is on, the first one ends the process as well: at once, with "kvm: interrupted" on standard error and exit
// status 130. One that came before ends it now.
void EndAtInterrupt(bool on);

}  // namespace kvm

#endif  // KVM_TOOLS_CLI_INTERRUPT_H_
