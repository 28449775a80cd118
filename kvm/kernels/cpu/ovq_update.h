#ifndef KVM_KERNELS_CPU_OVQ_UPDATE_H_
#define KVM_KERNELS_CPU_OVQ_UPDATE_H_

// How a complete chunk of tokens enters a dictionary: as centroids of their own, or by moving the most similar centroid
// towards them (online vector quantization).

#include <cstdint>
#include <memory_resource>
#include <vector>

#include "kvm/kernels/matrix_view.h"
#include "kvm/kernels/ovq_dictionary.h"
#include "kvm/kernels/ovq_schedule.h"

namespace kvm {

struct OvqUpdateOptions {
  int64_t num_centroids = 0;  // wanted after this chunk; the dictionary never shrinks
  // `values` are what the dictionary fails to predict, and are added to centroids rather than averaged with them.
  bool values_are_errors = false;
  // Touched centroids are scaled to unit length, floored at 1e-12.
  bool normalize_keys = false;
  bool normalize_values = false;
};

// Takes a chunk of n >= 1 tokens into the dictionary; keys [n, dim] have unit length, values [n, dim].
//  1. A token's similarity to a centroid is the dot product of their keys. The tokens whose largest similarity is
//  lowest
//     become centroids (key, value, count 1), as many as num_centroids asks for, in order of increasing similarity; of
//     equals the earlier does.
//  2. Every other token joins the old centroid it is most similar to, of equals the lowest. With N the centroid's
//  count,
//     all of these included, its key moves by Σ (token key − old key)/N, its value likewise, or by Σ value/N when
//     values are errors. Sums run over tokens in order.
// An empty dictionary begins with token 0 as its centroid 0 and then takes the others in as above. A similarity that is
// NaN counts as −inf: such a token is among the first to become centroids, and else joins centroid 0.
// num_centroids <= capacity. Returns the centroid of every token. `memory` is what the work is done in, the result too.
std::pmr::vector<int64_t> UpdateDictionary(MatrixView<const float> keys, MatrixView<const float> values,
                                           const OvqUpdateOptions& options, OvqDictionary& dictionary,
                                           std::pmr::memory_resource* memory = std::pmr::get_default_resource());

}  // namespace kvm

#endif  // KVM_KERNELS_CPU_OVQ_UPDATE_H_
