#ifndef KVM_MODEL_WEIGHTS_PARAMETERS_H_
#define KVM_MODEL_WEIGHTS_PARAMETERS_H_

// Every tensor of a stack: name, shape and how a new one begins. The single list that loading checks against, that
// new models are initialized from, and that tools print. Those of mixers are their kinds' (kvm/model/stack/kinds).

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kvm/model/stack/builtin_kinds.h"
#include "kvm/model/stack/mixer_kind.h"
#include "kvm/model/stack/parameter.h"
#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/weight_source.h"

namespace kvm {

// All parameters of a valid spec, in a fixed order.
std::vector<Parameter> StackParameters(const StackSpec& spec, const MixerKinds& kinds = BuiltinMixerKinds());

// The same one after the other, with those of one layer in memory at a time.
void ForEachParameter(const StackSpec& spec, absl::FunctionRef<void(const Parameter& parameter)> visit,
                      const MixerKinds& kinds = BuiltinMixerKinds());

// OK when `weights` has exactly the parameters of `spec` with their shapes and floating point dtypes. Otherwise
// InvalidArgument that names all missing, unexpected and mis-shaped tensors (tensor_problems.h). Tensors that published
// files hold although nothing reads them (MixerKind::unread_tensors) may be there. Memory and message are in proportion
// to the spec's text and to what `weights` holds, not to the parameters that the spec asks for.
absl::Status CheckWeights(const StackSpec& spec, const WeightSource& weights,
                          const MixerKinds& kinds = BuiltinMixerKinds());

// The number of elements of all parameters.
int64_t NumParameters(const StackSpec& spec, const MixerKinds& kinds = BuiltinMixerKinds());

}  // namespace kvm

#endif  // KVM_MODEL_WEIGHTS_PARAMETERS_H_
