#include "kvm/state/slot_memory.h"

#include <algorithm>
#include <cassert>

namespace kvm {

SlotMemory::SlotMemory(int64_t qk_dim, int64_t v_dim, DType readout)
    : qk_dim_(qk_dim), v_dim_(v_dim), readout_(readout) {
  assert(readout == DType::kF32 || readout == DType::kBF16 || readout == DType::kI8);
}

SlotRows SlotMemory::Reserve(int64_t additional) {
  if (count_ + additional > capacity_) {
    // Half as much again, so that growing one row at a time copies each row a few times only; whole panels.
    const int64_t wanted = std::max(count_ + additional, capacity_ + capacity_ / 2);
    capacity_ = (wanted + kKeyPanel - 1) / kKeyPanel * kKeyPanel;
    key_sums_.resize(capacity_ * qk_dim_);
    value_sums_.resize(capacity_ * v_dim_);
    radii_.resize(capacity_);
    readout_keys_.resize(KeyPanelElements(capacity_, qk_dim_) * SizeOf(readout_));
    readout_values_.resize(capacity_ * v_dim_ * SizeOf(readout_));
    if (readout_ == DType::kI8) {
      readout_key_scales_.resize(capacity_);
      readout_value_scales_.resize(capacity_);
    }
  }
  SlotRows rows;
  rows.count = count_;
  rows.capacity = capacity_;
  rows.qk_dim = qk_dim_;
  rows.v_dim = v_dim_;
  rows.key_sums = key_sums_.data();
  rows.value_sums = value_sums_.data();
  rows.radii = radii_.data();
  rows.readout_keys = readout_keys_.data();
  rows.readout_values = readout_values_.data();
  rows.readout_dtype = readout_;
  rows.readout_key_scales = readout_key_scales_.data();
  rows.readout_value_scales = readout_value_scales_.data();
  return rows;
}

void SlotMemory::Commit(const SlotRows& rows) {
  assert(rows.key_sums == key_sums_.data() && rows.count >= count_ && rows.count <= capacity_);
  count_ = rows.count;
}

KeyValueSegment SlotMemory::Readout() const {
  KeyValueSegment segment;
  segment.keys = readout_keys_.data();
  segment.values = readout_values_.data();
  segment.dtype = readout_;
  if (readout_ == DType::kI8) {
    segment.key_scales = readout_key_scales_.data();
    segment.value_scales = readout_value_scales_.data();
  }
  segment.count = count_;
  segment.is_state = true;
  return segment;
}

absl::Span<const float> SlotMemory::key_sums() const {
  return {key_sums_.data(), static_cast<size_t>(count_ * qk_dim_)};
}

absl::Span<const float> SlotMemory::value_sums() const {
  return {value_sums_.data(), static_cast<size_t>(count_ * v_dim_)};
}

absl::Span<const float> SlotMemory::radii() const { return {radii_.data(), static_cast<size_t>(count_)}; }

int64_t SlotMemory::ByteSizeOf(int64_t count, int64_t qk_dim, int64_t v_dim, DType readout) {
  const int64_t sums_and_radius = (qk_dim + v_dim + 1) * SizeOf(DType::kF32);
  const int64_t scales = readout == DType::kI8 ? 2 * SizeOf(DType::kF32) : 0;
  return count * (sums_and_radius + (qk_dim + v_dim) * SizeOf(readout) + scales);
}

}  // namespace kvm
