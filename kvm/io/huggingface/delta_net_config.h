#ifndef KVM_IO_HUGGINGFACE_DELTA_NET_CONFIG_H_
#define KVM_IO_HUGGINGFACE_DELTA_NET_CONFIG_H_

// The delta rule mixers of config.json, "gated_deltanet" and "kda", with D = hidden_size and H = num_attention_heads.
// Keys begin with the mixer's name:
//   _expand_k, _expand_v: channels of a head, int(D·expand/H); by default 0.75 and 1.5 (gated_deltanet), 1 and 1 (kda);
//   _conv_size, _conv_bias: of the short convolution; by default 4 and 0;
//   _allow_neg_eigval: by default 0;
//   _token_shift_mode, _value_residual_mode: these mixers have neither: "none";
//   gated_deltanet_num_kv_heads: value heads are as many as heads: null or H;
//   gated_deltanet_use_mamba_gate: the decay's form exp(−A·softplus(a + dt_bias)), the only one here: 1.

#include "absl/types/span.h"
#include "kvm/io/huggingface/config_key.h"
#include "kvm/io/json/json_fields.h"
#include "kvm/model/stack/stack.pb.h"

namespace kvm {

// Values that cannot be are problems of `fields`.
GatedDeltaNetSpec ReadGatedDeltaNet(JsonFields* fields);
KimiDeltaSpec ReadKimiDelta(JsonFields* fields);

// Those above, and others of the library that these mixers come from: for config_keys.cc.
absl::Span<const ConfigKey> DeltaNetConfigKeys();

}  // namespace kvm

#endif  // KVM_IO_HUGGINGFACE_DELTA_NET_CONFIG_H_
