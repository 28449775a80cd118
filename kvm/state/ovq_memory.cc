#include "kvm/state/ovq_memory.h"

#include <algorithm>
#include <cassert>

#include "kvm/status_macros.h"

namespace kvm {

OvqDictionary OvqMemory::Reserve(int64_t num_centroids) {
  if (num_centroids > capacity_) {
    // Half as much again, so that growing chunk by chunk copies each centroid a few times only.
    Grow(std::max(num_centroids, capacity_ + capacity_ / 2));
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

void OvqMemory::Grow(int64_t capacity) {
  capacity_ = KeyPanelElements(capacity, 1);
  keys_.resize(KeyPanelElements(capacity_, dim_));
  values_.resize(capacity_ * dim_);
  counts_.resize(capacity_);
  log_counts_.resize(capacity_);
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
  return (KeyPanelElements(count, dim) + count * (dim + 2)) * static_cast<int64_t>(sizeof(float));
}

Shape OvqMemory::KeysShape(int64_t count) const { return {KeyPanelElements(count, 1) / kKeyPanel, dim_, kKeyPanel}; }

void OvqMemory::Save(const StateWriter& out) const {
  out.Number("centroids", count_);
  out.Tensor("keys", DType::kF32, KeysShape(count_), keys_.data());
  out.Tensor("values", DType::kF32, {count_, dim_}, values_.data());
  out.Tensor("counts", DType::kF32, {count_}, counts_.data());
  out.Tensor("log_counts", DType::kF32, {count_}, log_counts_.data());
}

absl::Status OvqMemory::Restore(const StateReader& in, int64_t centroids) {
  ASSIGN_OR_RETURN(const int64_t count, in.Number("centroids", centroids, centroids));
  // A number alone is not to be trusted with memory.
  RETURN_IF_ERROR(in.View("keys", DType::kF32, KeysShape(count)).status());
  Grow(count);
  count_ = count;
  RETURN_IF_ERROR(in.Tensor("keys", DType::kF32, KeysShape(count), keys_.data()));
  RETURN_IF_ERROR(in.Tensor("values", DType::kF32, {count, dim_}, values_.data()));
  RETURN_IF_ERROR(in.Tensor("counts", DType::kF32, {count}, counts_.data()));
  return in.Tensor("log_counts", DType::kF32, {count}, log_counts_.data());
}

}  // namespace kvm
