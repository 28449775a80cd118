#ifndef KVM_MODEL_STACK_MIXER_PROBLEMS_H_
#define KVM_MODEL_STACK_MIXER_PROBLEMS_H_

#include <cstdint>
#include <string>

#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/stack/stack_checker.h"

namespace kvm {

// Adds every bad field of a mixer's kind to what `check` has found. `width` is the stack's, `path` the mixer's own
// ("mixers[1]").
void CheckMixerKind(const MixerSpec& mixer, int64_t width, const std::string& path, StackChecker* check);

}  // namespace kvm

#endif  // KVM_MODEL_STACK_MIXER_PROBLEMS_H_
