#ifndef KVM_MODEL_STACK_DELTA_NET_SPEC_H_
#define KVM_MODEL_STACK_DELTA_NET_SPEC_H_

// What the two delta rule mixers, gated_delta_net and kimi_delta, have in common, with all defaults filled in.

#include <cstdint>

#include "kvm/model/stack/stack.pb.h"

namespace kvm {

struct DeltaNetSpec {
  int64_t num_heads = 0;        // H, query/key heads
  int64_t num_value_heads = 0;  // HV, a multiple of H; value head h reads query/key head floor(h/(HV/H))
  int64_t qk_dim = 0;           // K
  int64_t v_dim = 0;            // V
  int64_t conv_size = 0;        // 0: no convolution
  bool conv_bias = false;
  bool allow_negative_eigenvalues = false;
  double norm_epsilon = 0;

  int64_t qk_width() const { return num_heads * qk_dim; }
  int64_t value_width() const { return num_value_heads * v_dim; }
  // Rows of raw projections that the convolution remembers.
  int64_t history() const { return conv_size > 0 ? conv_size - 1 : 0; }
};

// `width` is the stack's, of which a head has width / num_heads key channels by default.
DeltaNetSpec ResolveDeltaNet(const GatedDeltaNetSpec& spec, int64_t width);
DeltaNetSpec ResolveDeltaNet(const KimiDeltaSpec& spec, int64_t width);

}  // namespace kvm

#endif  // KVM_MODEL_STACK_DELTA_NET_SPEC_H_
