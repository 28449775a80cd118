#ifndef KVM_KERNELS_OVQ_SCHEDULE_H_
#define KVM_KERNELS_OVQ_SCHEDULE_H_

#include <cstdint>

namespace kvm {

// How many centroids a dictionary (ovq_dictionary.h) has after `tokens` tokens.
struct OvqSchedule {
  int64_t max_centroids = 0;  // M
  bool linear = false;        // min(tokens, M) rather than floor(tokens·M/(tokens + M))
};
// At least 1 from the first token on.
int64_t DictionarySize(const OvqSchedule& schedule, int64_t tokens);

}  // namespace kvm

#endif  // KVM_KERNELS_OVQ_SCHEDULE_H_
