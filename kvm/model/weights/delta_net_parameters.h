#ifndef KVM_MODEL_WEIGHTS_DELTA_NET_PARAMETERS_H_
#define KVM_MODEL_WEIGHTS_DELTA_NET_PARAMETERS_H_

// The tensors of Gated DeltaNet and Kimi Delta Attention, under the names of the flash-linear-attention library.
//
// New ones begin so that the heads (GDN) or the key channels of each head (KDA) remember over very different lengths:
//   A_log        log of 1 to 16, evenly spaced over the value heads; 0 (A = 1) with a decay lower bound
//   dt_bias      inverse softplus of dt, from 0.001 to 0.1 in even ratios over the value heads (GDN) or over each
//   head's
//                key channels (KDA), so that a projection of 0 decays by exp(−A·dt);
//                with a lower bound L logit(min(dt/|L|, 1/2)), for a decay of exp(−dt)
//   conv1d       weights uniform in ±1/sqrt(size), biases 0
//   matrices     orthogonal: gain 1; b_proj, a_proj, f_proj.1 and KDA's g_proj.1, which turn gates, 0.1;
//                o_proj a block output
//   o_norm 1, g_proj.1.bias 0

#include <string>
#include <vector>

#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/mixer_parameters.h"
#include "kvm/model/weights/parameters.h"

namespace kvm {

// Each appends the parameters of a mixer to `parameters`, as mixer_parameters.h says.
void AppendGatedDeltaNetParameters(const GatedDeltaNetSpec& spec, const LayerPlace& place, const std::string& prefix,
                                   std::vector<Parameter>* parameters);
void AppendKimiDeltaParameters(const KimiDeltaSpec& spec, const LayerPlace& place, const std::string& prefix,
                               std::vector<Parameter>* parameters);

}  // namespace kvm

#endif  // KVM_MODEL_WEIGHTS_DELTA_NET_PARAMETERS_H_
