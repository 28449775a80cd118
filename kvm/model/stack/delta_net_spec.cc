#include "kvm/model/stack/delta_net_spec.h"

namespace kvm {
namespace {

// What both messages name alike. `v_per_qk`: value channels for each key channel by default.
template <class Spec>
DeltaNetSpec Resolve(const Spec& spec, int64_t width, int64_t v_per_qk) {
  DeltaNetSpec resolved;
  resolved.num_heads = spec.num_heads();
  resolved.num_value_heads = spec.has_num_value_heads() ? spec.num_value_heads() : spec.num_heads();
  resolved.qk_dim = spec.has_qk_head_dim() ? spec.qk_head_dim() : width / spec.num_heads();
  resolved.v_dim = spec.has_v_head_dim() ? spec.v_head_dim() : resolved.qk_dim * v_per_qk;
  resolved.conv_size = spec.convolution().enabled() ? spec.convolution().size() : 0;
  resolved.conv_bias = spec.convolution().enabled() && spec.convolution().bias();
  resolved.allow_negative_eigenvalues = spec.allow_negative_eigenvalues();
  resolved.norm_epsilon = spec.norm_epsilon();
  return resolved;
}

}  // namespace

DeltaNetSpec ResolveDeltaNet(const GatedDeltaNetSpec& spec, int64_t width) { return Resolve(spec, width, 2); }

DeltaNetSpec ResolveDeltaNet(const KimiDeltaSpec& spec, int64_t width) { return Resolve(spec, width, 1); }

}  // namespace kvm
