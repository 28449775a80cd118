#ifndef KVM_STATE_OVQ_MEMORY_H_
#define KVM_STATE_OVQ_MEMORY_H_

// The dictionary of one head of an OVQ layer. Owns the bytes; kvm/kernels/cpu/ovq_update.h does the arithmetic.

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kvm/kernels/key_value.h"
#include "kvm/kernels/matrix_view.h"
#include "kvm/kernels/ovq_dictionary.h"
#include "kvm/state/growing_buffer.h"
#include "kvm/state/state_fields.h"

namespace kvm {

// Copies are deep (Fork), of the centroids in use alone. Thread-compatible.
class OvqMemory {
 public:
  // `dim` >= 1: channels of keys and of values.
  explicit OvqMemory(int64_t dim);

  int64_t count() const { return count_; }

  // A writable view with room for `num_centroids` in all. Valid until the next call; hand the grown view back with
  // Commit().
  OvqDictionary Reserve(int64_t num_centroids);
  // Takes over dictionary.count of a view that Reserve() returned.
  void Commit(const OvqDictionary& dictionary);

  // What queries read: one state segment, with log counts as biases if `biased`.
  KeyValueSegment Readout(bool biased) const;

  // Copies all keys [>= count, dim], values [>= count, dim] and counts [>= count], of which further ones stay as they
  // are.
  void Read(MatrixView<float> keys, MatrixView<float> values, absl::Span<float> counts) const;

  // Bytes of the centroids in use, whose keys count in whole panels.
  int64_t ByteSize() const { return ByteSizeOf(count_, dim_); }
  static int64_t ByteSizeOf(int64_t count, int64_t dim);

  // "centroids"; "keys" [panels, dim, kKeyPanel], "values" [centroids, dim], "counts" [centroids], "log_counts"
  // [centroids].
  void Save(const StateWriter& out) const;
  // Takes over what Save() wrote of a dictionary with exactly this many centroids. InvalidArgument naming the field
  // that is not as it must be.
  absl::Status Restore(const StateReader& in, int64_t centroids);

 private:
  // Gives every array `centroids` entries, rounded up to whole panels, and returns how many that are.
  int64_t Resize(int64_t centroids);
  Shape KeysShape(int64_t count) const;

  int64_t dim_;
  int64_t count_ = 0;
  GrowingBuffer keys_;  // in panels
  GrowingBuffer values_;
  GrowingBuffer counts_;
  GrowingBuffer log_counts_;
};

}  // namespace kvm

#endif  // KVM_STATE_OVQ_MEMORY_H_
