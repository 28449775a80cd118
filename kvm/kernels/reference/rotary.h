#ifndef KVM_KERNELS_REFERENCE_ROTARY_H_
#define KVM_KERNELS_REFERENCE_ROTARY_H_

#include <cstdint>
#include <vector>

namespace kvm {
namespace reference {

// Frequencies theta^(−p/(n−1)) of n = rotary_dim/2 pairs; n = 1 gives {1}.
std::vector<double> RotaryFrequencies(int64_t rotary_dim, double theta);

// One head's vector turned by the angles of its pairs: channels 2p and 2p + 1 by angles[p], the other channels kept.
std::vector<double> ApplyRotary(const std::vector<float>& x, const std::vector<double>& angles);

}  // namespace reference
}  // namespace kvm

#endif  // KVM_KERNELS_REFERENCE_ROTARY_H_
