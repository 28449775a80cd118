#ifndef KVM_MODEL_STACK_STACK_PLAN_H_
#define KVM_MODEL_STACK_STACK_PLAN_H_

// A stack's wiring as data, so that no engine derives it again: which mixer a layer has, which value anchor it takes,
// where skip connections go.

#include <cstdint>
#include <string>
#include <vector>

#include "kvm/model/stack/builtin_kinds.h"
#include "kvm/model/stack/mixer_kind.h"
#include "kvm/model/stack/stack.pb.h"

namespace kvm {

struct LayerPlan {
  int mixer = 0;             // index into spec.mixers
  std::string prefix;        // of its tensors: "transformer.h.3."
  int anchor = -1;           // index into anchor_layers, −1 for a mixer without value residual
  bool pushes_skip = false;  // its output is handed to a later layer
  int takes_skip = -1;       // index into skip_weights of what is added before it, last pushed first; −1 for nothing
};

struct StackPlan {
  StackSpec spec;
  std::vector<LayerPlan> layers;
  std::vector<int> anchor_layers;  // layers whose value projection of the stack's input is a value anchor
};

// The plan of a spec that is valid with these kinds.
StackPlan MakeStackPlan(const StackSpec& spec, const MixerKinds& kinds = BuiltinMixerKinds());

}  // namespace kvm

#endif  // KVM_MODEL_STACK_STACK_PLAN_H_
