#ifndef KVM_KERNELS_REFERENCE_SLOT_ATTENTION_H_
#define KVM_KERNELS_REFERENCE_SLOT_ATTENTION_H_

#include <cstdint>
#include <vector>

namespace kvm {
namespace reference {

struct AttentionKey {
  std::vector<double> key;    // [qk_dim]
  std::vector<double> value;  // [v_dim]
  bool is_state = false;      // seen by every query; others from their position on, for `span` positions
  int64_t position = 0;
  double bias = 0;  // added to the score
};

// One query's softmax attention over all keys that it sees: scores are scale·(q·k) + bias with the scale of the
// key's kind. Zeros when it sees none of them.
std::vector<double> SlotAttention(const std::vector<double>& query, int64_t position,
                                  const std::vector<AttentionKey>& keys, int64_t span, double state_scale,
                                  double window_scale);

}  // namespace reference
}  // namespace kvm

#endif  // KVM_KERNELS_REFERENCE_SLOT_ATTENTION_H_
