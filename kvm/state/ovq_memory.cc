#include "kvm/state/ovq_memory.h"

#include <algorithm>
#include <cassert>

namespace kvm {

OvqDictionary OvqMemory::Reserve(int64_t num_centroids) {
  if (num_centroids > capacity_) {
    // Half as much again, so that growing chunk by chunk copies each centroid a few times only; whole panels.
    const int64_t wanted = std::max(num_centroids, capacity_ + capacity_ / 2);
    capacity_ = KeyPanelElements(wanted, 1);
    keys_.resize(KeyPanelElements(capacity_, dim_));
    values_.resize(capacity_ * dim_);
    counts_.resize(capacity_);
    log_counts_.resize(capacity_);
  }
  OvqDictionary dictionary;
  dictionary.count = count_;
  dictionary.capacity = capacity_;
  dictionary.dim = dim_;
  dictionary.keys = keys_.data();
  dictionary.values = values_.data();
  dictionary.counts = counts_.data();
  dictionary.log_counts = log_counts_.data();
  return dictionary;
}

void OvqMemory::Commit(const OvqDictionary& dictionary) {
  assert(dictionary.keys == keys_.data() && dictionary.count >= count_ && dictionary.count <= capacity_);
  count_ = dictionary.count;
}

KeyValueSegment OvqMemory::Readout(bool biased) const {
  KeyValueSegment segment;
  segment.keys = keys_.data();
  segment.values = values_.data();
  segment.dtype = DType::kF32;
  segment.count = count_;
  segment.is_state = true;
  if (biased) segment.biases = log_counts_.data();
  return segment;
}

void OvqMemory::Read(MatrixView<float> keys, MatrixView<float> values, absl::Span<float> counts) const {
  for (int64_t i = 0; i < count_; ++i) {
    for (int64_t c = 0; c < dim_; ++c) keys.row(i)[c] = keys_[KeyPanelOffset(i, c, dim_)];
    std::copy_n(values_.begin() + i * dim_, dim_, values.row(i));
  }
  std::copy_n(counts_.begin(), count_, counts.begin());
}

int64_t OvqMemory::ByteSizeOf(int64_t count, int64_t dim) {
  return count * (2 * dim + 2) * static_cast<int64_t>(sizeof(float));
}

}  // namespace kvm
