#ifndef KVM_KERNELS_OVQ_DICTIONARY_H_
#define KVM_KERNELS_OVQ_DICTIONARY_H_

// A borrowed view of the dictionary of one head of an OVQ layer (online vector quantization): centroids of the keys
// and values seen so far. Routing and attention read the same numbers, so all of them are float32.

#include <cstdint>

namespace kvm {

struct OvqDictionary {
  int64_t count = 0;            // centroids in use
  int64_t capacity = 0;         // centroids there is memory for: whole panels
  int64_t dim = 0;              // channels of keys and of values
  float* keys = nullptr;        // in panels (key_value.h); lanes past `count` hold finite numbers
  float* values = nullptr;      // [capacity, dim]
  float* counts = nullptr;      // [capacity]: the tokens of a centroid, a whole number
  float* log_counts = nullptr;  // [capacity]: the bias of its attention score
};

}  // namespace kvm

#endif  // KVM_KERNELS_OVQ_DICTIONARY_H_
