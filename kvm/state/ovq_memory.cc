#include "kvm/state/ovq_memory.h"

#include <algorithm>

#include "kvm/base/check.h"
#include "kvm/base/status_macros.h"
#include "kvm/kernels/check_view.h"
#include "kvm/kernels/key_panels.h"

namespace kvm {

OvqMemory::OvqMemory(int64_t dim) : dim_(dim) { CheckAtLeast(dim, 1, "dim"); }

OvqDictionary OvqMemory::Reserve(int64_t num_centroids) {
  CheckAtLeast(num_centroids, 0, "num_centroids");
  OvqDictionary dictionary;
  dictionary.count = count_;
  dictionary.capacity = Resize(std::max(num_centroids, count_));
  dictionary.dim = dim_;
  dictionary.keys = keys_.floats();
  dictionary.values = values_.floats();
  dictionary.counts = counts_.floats();
  dictionary.log_counts = log_counts_.floats();
  return dictionary;
}

int64_t OvqMemory::Resize(int64_t centroids) {
  centroids = KeyPanelElements(centroids, 1);
  const int64_t of_float = SizeOf(DType::kF32);
  keys_.Resize(centroids * dim_ * of_float);
  values_.Resize(centroids * dim_ * of_float);
  counts_.Resize(centroids * of_float);
  log_counts_.Resize(centroids * of_float);
  return centroids;
}

void OvqMemory::Commit(const OvqDictionary& dictionary) {
  Check(dictionary.keys == keys_.floats(), "the view that Reserve() returned last");
  CheckBetween(dictionary.count, count_, dictionary.capacity, "dictionary.count");
  count_ = dictionary.count;
  // What was asked for and not used is not to be copied.
  Resize(count_);
}

KeyValueSegment OvqMemory::Readout(bool biased) const {
  KeyValueSegment segment;
  segment.keys = keys_.data();
  segment.values = values_.data();
  segment.dtype = DType::kF32;
  segment.count = count_;
  segment.is_state = true;
  if (biased) segment.biases = log_counts_.floats();
  return segment;
}

void OvqMemory::Read(MatrixView<float> keys, MatrixView<float> values, absl::Span<float> counts) const {
  CheckView(keys, keys.rows, dim_, "keys");
  CheckView(values, values.rows, dim_, "values");
  CheckAtLeast(keys.rows, count_, "keys.rows");
  CheckAtLeast(values.rows, count_, "values.rows");
  CheckAtLeast(counts.size(), count_, "counts.size()");
  UnpackKeys(keys_.data(), 0, DType::kF32, keys.Rows(0, count_));
  for (int64_t i = 0; i < count_; ++i) std::copy_n(values_.floats() + i * dim_, dim_, values.row(i));
  std::copy_n(counts_.floats(), count_, counts.begin());
}

int64_t OvqMemory::ByteSizeOf(int64_t count, int64_t dim) {
  CheckAtLeast(count, 0, "count");
  CheckAtLeast(dim, 1, "dim");
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
  Resize(count);
  count_ = count;
  RETURN_IF_ERROR(in.Tensor("keys", DType::kF32, KeysShape(count), keys_.data()));
  RETURN_IF_ERROR(in.Tensor("values", DType::kF32, {count, dim_}, values_.data()));
  RETURN_IF_ERROR(in.Tensor("counts", DType::kF32, {count}, counts_.data()));
  return in.Tensor("log_counts", DType::kF32, {count}, log_counts_.data());
}

}  // namespace kvm
