#ifndef KVM_KERNELS_SLOT_ROWS_H_
#define KVM_KERNELS_SLOT_ROWS_H_

// A borrowed view of the KVM state rows of one key/value head: the sums that merges add to, and the readout rows that
// queries see, kept up to date with them.

#include <cstdint>

#include "kvm/kernels/dtype.h"

namespace kvm {

struct SlotRows {
  int64_t count = 0;     // rows in use
  int64_t capacity = 0;  // rows there is memory for
  int64_t qk_dim = 0;
  int64_t v_dim = 0;
  float* key_sums = nullptr;    // [capacity, qk_dim]
  float* value_sums = nullptr;  // [capacity, v_dim]
  float* radii = nullptr;       // [capacity]: the readout value's norm, or with use_radius off a count
  // Readout rows: LN(key sum) in panels (key_value.h) and the scaled value sum [capacity, v_dim].
  void* readout_keys = nullptr;
  void* readout_values = nullptr;
  DType readout_dtype = DType::kF32;  // kF32, kBF16 or kI8
  // kI8: what the integers of a row are multiplied with, [capacity] each, in memory for whole panels.
  float* readout_key_scales = nullptr;
  float* readout_value_scales = nullptr;
};

}  // namespace kvm

#endif  // KVM_KERNELS_SLOT_ROWS_H_
