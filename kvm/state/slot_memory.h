#ifndef KVM_STATE_SLOT_MEMORY_H_
#define KVM_STATE_SLOT_MEMORY_H_

// The state rows of one KVM key/value head: key sums, value sums, radii, and the readout rows that queries see.
// Owns the bytes; kvm/kernels/cpu/slot_update.h does the arithmetic on rows().

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kvm/kernels/dtype.h"
#include "kvm/kernels/key_value.h"
#include "kvm/kernels/slot_rows.h"
#include "kvm/state/growing_buffer.h"
#include "kvm/state/state_fields.h"

namespace kvm {

// Copies are deep (Fork), of the rows in use alone. Thread-compatible.
class SlotMemory {
 public:
  // qk_dim, v_dim >= 1. `readout`: kF32, kBF16, or kI8 with a float32 scale a row for keys and one for values.
  SlotMemory(int64_t qk_dim, int64_t v_dim, DType readout);

  int64_t count() const { return count_; }

  // A writable view with room for `additional` more rows. Valid until the next call; hand the grown view back with
  // Commit().
  SlotRows Reserve(int64_t additional);
  // Takes over rows.count of a view that Reserve() returned.
  void Commit(const SlotRows& rows);

  // What queries read: one state segment.
  KeyValueSegment Readout() const;

  absl::Span<const float> key_sums() const;    // [count, qk_dim]
  absl::Span<const float> value_sums() const;  // [count, v_dim]
  absl::Span<const float> radii() const;       // [count]

  // Bytes of the rows in use: sums, radii and readout rows, whose keys count in whole panels.
  int64_t ByteSize() const { return ByteSizeOf(count_, qk_dim_, v_dim_, readout_); }
  static int64_t ByteSizeOf(int64_t count, int64_t qk_dim, int64_t v_dim, DType readout);

  // "rows"; "key_sums" [rows, qk_dim], "value_sums" [rows, v_dim], "radii" [rows]; "readout_keys" [panels, qk_dim,
  // kKeyPanel], "readout_values" [rows, v_dim], and of integers "readout_key_scales" [rows], "readout_value_scales"
  // [rows].
  void Save(const StateWriter& out) const;
  // Takes over what Save() wrote of a memory with min_rows to max_rows rows. InvalidArgument naming the field that is
  // not as it must be.
  absl::Status Restore(const StateReader& in, int64_t min_rows, int64_t max_rows);

 private:
  // Gives every array `rows` rows, rounded up to whole panels, and returns how many that are.
  int64_t Resize(int64_t rows);
  Shape ReadoutKeysShape(int64_t count) const;

  int64_t qk_dim_;
  int64_t v_dim_;
  DType readout_;
  int64_t count_ = 0;
  GrowingBuffer key_sums_;
  GrowingBuffer value_sums_;
  GrowingBuffer radii_;
  GrowingBuffer readout_keys_;
  GrowingBuffer readout_values_;
  GrowingBuffer readout_key_scales_;  // kI8 only
  GrowingBuffer readout_value_scales_;
};

}  // namespace kvm

#endif  // KVM_STATE_SLOT_MEMORY_H_
