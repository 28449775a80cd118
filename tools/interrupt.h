#ifndef KVM_TOOLS_INTERRUPT_H_
#define KVM_TOOLS_INTERRUPT_H_

namespace kvm {

// From now on the first Ctrl-C (SIGINT, or SIGTERM) sets a flag; a second one ends the process at once.
void CatchInterrupts();

// Whether there was one.
bool WasInterrupted();

}  // namespace kvm

#endif  // KVM_TOOLS_INTERRUPT_H_
