#ifndef KVM_MODEL_WEIGHTS_MIXER_PARAMETERS_H_
#define KVM_MODEL_WEIGHTS_MIXER_PARAMETERS_H_

// The tensors of each kind of mixer, under the names of the published checkpoints.
//
// New ones begin as in the published training code. With D the width, L layers, layer l, and i = 0..n−1 the channel of
// a vector of n:
//   matrices       orthogonal: gain 1, RWKV-7's key 0.1; block outputs zero, otherwise as gain 1
//   low rank pairs first matrix zero, second orthogonal with gain 0.1·max(1, sqrt(rank/outputs))
//   shift mixes    x_z[i] = 1 − (i/n)^(e·(1 − l/L)), e = 0.2 for q, r, g; 0.7 for k, v; 0.9 for w, a: early layers and
//                  low channels look at the token before most
//   value gates    v_gate0[i], v0[i] = 0.73 − 0.4·(i/(n−1) − 1/2); lamb 0.5
//   RWKV-7         with s = i/(D−1) − 1/2 and z·|z|, z running from −1 to 1 within each head:
//                  w0 = −6 + 6·(i/(D−1))^(1 + (l/(L−1))^0.3) + 0.5 + 2.5·z|z|;  a0 = −0.19 + 0.3·z|z| + 0.4·s
//                  k_k = 0.71 − 0.1·s;  k_a = 1.02;  r_k = −0.04;  ln_x.weight = ((l + 1)/L)^0.7
//   merge gate     key_weighting zero, so that g = 1
//   temperatures and beta 1, norms' weights 1 and biases 0
//   delta rules    see delta_net_parameters.h

#include <cstdint>
#include <string>
#include <vector>

#include "kvm/model/stack/stack.pb.h"
#include "kvm/model/weights/parameters.h"

namespace kvm {

// Where a layer stands, as its parameters' beginnings depend on it.
struct LayerPlace {
  int layer = 0;
  int num_layers = 0;
  int64_t width = 0;
};

// Each appends the parameters of a mixer to `parameters`; `prefix` is "transformer.h.I.attn.".
void AppendAttentionParameters(const AttentionSpec& spec, const LayerPlace& place, const std::string& prefix,
                               std::vector<Parameter>* parameters);
void AppendKvmParameters(const KvmSpec& spec, const LayerPlace& place, const std::string& prefix,
                         std::vector<Parameter>* parameters);
void AppendRwkv7Parameters(const Rwkv7Spec& spec, const LayerPlace& place, const std::string& prefix,
                           std::vector<Parameter>* parameters);
void AppendBlockWindowParameters(const BlockWindowSpec& spec, const LayerPlace& place, const std::string& prefix,
                                 std::vector<Parameter>* parameters);
void AppendOvqParameters(const OvqSpec& spec, const LayerPlace& place, const std::string& prefix,
                         std::vector<Parameter>* parameters);
void AppendMixerParameters(const MixerSpec& spec, const LayerPlace& place, const std::string& prefix,
                           std::vector<Parameter>* parameters);

// Tensors that the published code makes for a mixer although nothing reads them: x_v of a gated value residual without
// token shift.
std::vector<std::string> UnreadTensors(const MixerSpec& spec, int64_t width, const std::string& prefix);

// The mix of a token with the one before: entry i is 1 − (i/n)^(exponent·(1 − layer/num_layers)).
Initialization ShiftMix(double exponent, const LayerPlace& place, int64_t n);

// Weight and bias of a norm over `dim` channels, as `name`.weight and `name`.bias.
void AppendNorm(const std::string& name, int64_t dim, std::vector<Parameter>* parameters);

}  // namespace kvm

#endif  // KVM_MODEL_WEIGHTS_MIXER_PARAMETERS_H_
