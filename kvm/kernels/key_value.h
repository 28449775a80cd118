#ifndef KVM_KERNELS_KEY_VALUE_H_
#define KVM_KERNELS_KEY_VALUE_H_

// How keys and values lie in memory for attention: keys in panels of kKeyPanel with the panel's keys side by side,
// so that vectors run across keys; values as plain rows, so that vectors run across channels.

#include <cstdint>

#include "kvm/kernels/dtype.h"

namespace kvm {

inline constexpr int64_t kKeyPanel = 16;

// Elements that `count` keys of `dim` channels take in panels [ceil(count/kKeyPanel)][dim][kKeyPanel].
inline int64_t KeyPanelElements(int64_t count, int64_t dim) {
  return (count + kKeyPanel - 1) / kKeyPanel * kKeyPanel * dim;
}

// Where channel c of key i lies within panels of `dim` channels, in elements.
inline int64_t KeyPanelOffset(int64_t i, int64_t c, int64_t dim) {
  return (i / kKeyPanel) * kKeyPanel * dim + c * kKeyPanel + i % kKeyPanel;
}

// A run of keys and values of one key/value head.
struct KeyValueSegment {
  const void* keys = nullptr;    // panels of qk_dim channels; lanes past `count` hold finite numbers
  const void* values = nullptr;  // [count, v_dim] rows
  DType dtype = DType::kF32;     // of both: kF32, kBF16 or kI8
  // kI8: key i is key_scales[i] times its integers, value i value_scales[i] times its own; in memory for whole panels.
  const float* key_scales = nullptr;
  const float* value_scales = nullptr;
  int64_t count = 0;
  // Every query sees a state segment. Key i of any other one has the position first_position + i: the queries at that
  // position and up to `span` − 1 later see it (AttentionHead).
  bool is_state = false;
  int64_t first_position = 0;
  // Added to the scores: one number a key, in memory for whole panels. Null: nothing is added.
  const float* biases = nullptr;
};

}  // namespace kvm

#endif  // KVM_KERNELS_KEY_VALUE_H_
