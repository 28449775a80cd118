#ifndef KVM_IO_HUGGINGFACE_CONFIG_ROPE_H_
#define KVM_IO_HUGGINGFACE_CONFIG_ROPE_H_

// The rotary settings of config.json as the transformers library writes them: in `rope_parameters` (version 5) or
// `rope_scaling` (before), an object such as {"rope_type": "default", "rope_theta": 1e6}. What they may hold here:
//   rope_type, type: "default", the only form that is offered: no scaling;
//   rope_theta: what `rope_theta` says, of the layers that this speaks of;
//   partial_rotary_factor: rope_partial_dim over the channels of a head;
//   factor, attention_factor: 1; original_max_position_embeddings: anything, as nothing is scaled by it.

#include <optional>

#include "kvm/io/json/json_fields.h"
#include "kvm/model/stack/stack.pb.h"

namespace kvm {

inline constexpr char kRopeParametersKey[] = "rope_parameters";
inline constexpr char kRopeScalingKey[] = "rope_scaling";

// `rope_theta`, wherever it stands; `default_theta` where it does not.
double ReadRopeTheta(double default_theta, JsonFields* fields);

// Problems of `fields` for whatever else the two objects ask for, and for thetas that disagree. `spec` is what was read
// from the fields; null when that is not valid: then the share of rotary channels is not looked at.
void CheckRope(const StackSpec* spec, JsonFields* fields);

// rope_partial_dim over the channels of a head, of the first mixer with rotary channels or heads for them; nothing
// where no mixer has such.
std::optional<double> PartialRotaryFactor(const StackSpec& spec);

}  // namespace kvm

#endif  // KVM_IO_HUGGINGFACE_CONFIG_ROPE_H_
