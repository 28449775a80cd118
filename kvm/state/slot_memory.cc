#include "kvm/state/slot_memory.h"

#include "kvm/base/check.h"
#include "kvm/base/status_macros.h"

namespace kvm {

SlotMemory::SlotMemory(int64_t qk_dim, int64_t v_dim, DType readout)
    : qk_dim_(qk_dim), v_dim_(v_dim), readout_(readout) {
  CheckAtLeast(qk_dim, 1, "qk_dim");
  CheckAtLeast(v_dim, 1, "v_dim");
  Check(readout == DType::kF32 || readout == DType::kBF16 || readout == DType::kI8, "readout to be F32, BF16 or I8");
}

SlotRows SlotMemory::Reserve(int64_t additional) {
  CheckAtLeast(additional, 0, "additional");
  SlotRows rows;
  rows.count = count_;
  rows.capacity = Resize(count_ + additional);
  rows.qk_dim = qk_dim_;
  rows.v_dim = v_dim_;
  rows.key_sums = key_sums_.floats();
  rows.value_sums = value_sums_.floats();
  rows.radii = radii_.floats();
  rows.readout_keys = readout_keys_.data();
  rows.readout_values = readout_values_.data();
  rows.readout_dtype = readout_;
  rows.readout_key_scales = readout_key_scales_.floats();
  rows.readout_value_scales = readout_value_scales_.floats();
  return rows;
}

int64_t SlotMemory::Resize(int64_t rows) {
  rows = KeyPanelElements(rows, 1);
  const int64_t of_float = SizeOf(DType::kF32), of_readout = SizeOf(readout_);
  key_sums_.Resize(rows * qk_dim_ * of_float);
  value_sums_.Resize(rows * v_dim_ * of_float);
  radii_.Resize(rows * of_float);
  readout_keys_.Resize(rows * qk_dim_ * of_readout);
  readout_values_.Resize(rows * v_dim_ * of_readout);
  if (readout_ == DType::kI8) {
    readout_key_scales_.Resize(rows * of_float);
    readout_value_scales_.Resize(rows * of_float);
  }
  return rows;
}

void SlotMemory::Commit(const SlotRows& rows) {
  Check(rows.key_sums == key_sums_.floats(), "the view that Reserve() returned last");
  CheckBetween(rows.count, count_, rows.capacity, "rows.count");
  count_ = rows.count;
  // What was asked for and not used is not to be copied.
  Resize(count_);
}

KeyValueSegment SlotMemory::Readout() const {
  KeyValueSegment segment;
  segment.keys = readout_keys_.data();
  segment.values = readout_values_.data();
  segment.dtype = readout_;
  if (readout_ == DType::kI8) {
    segment.key_scales = readout_key_scales_.floats();
    segment.value_scales = readout_value_scales_.floats();
  }
  segment.count = count_;
  segment.is_state = true;
  return segment;
}

absl::Span<const float> SlotMemory::key_sums() const {
  return {key_sums_.floats(), static_cast<size_t>(count_ * qk_dim_)};
}

absl::Span<const float> SlotMemory::value_sums() const {
  return {value_sums_.floats(), static_cast<size_t>(count_ * v_dim_)};
}

absl::Span<const float> SlotMemory::radii() const { return {radii_.floats(), static_cast<size_t>(count_)}; }

int64_t SlotMemory::ByteSizeOf(int64_t count, int64_t qk_dim, int64_t v_dim, DType readout) {
  CheckAtLeast(count, 0, "count");
  const int64_t sums_and_radius = (qk_dim + v_dim + 1) * SizeOf(DType::kF32);
  const int64_t scales = readout == DType::kI8 ? 2 * SizeOf(DType::kF32) : 0;
  return count * (sums_and_radius + v_dim * SizeOf(readout) + scales) +
         KeyPanelElements(count, qk_dim) * SizeOf(readout);
}

Shape SlotMemory::ReadoutKeysShape(int64_t count) const {
  return {KeyPanelElements(count, 1) / kKeyPanel, qk_dim_, kKeyPanel};
}

void SlotMemory::Save(const StateWriter& out) const {
  out.Number("rows", count_);
  out.Tensor("key_sums", DType::kF32, {count_, qk_dim_}, key_sums_.data());
  out.Tensor("value_sums", DType::kF32, {count_, v_dim_}, value_sums_.data());
  out.Floats("radii", radii());
  out.Tensor("readout_keys", readout_, ReadoutKeysShape(count_), readout_keys_.data());
  out.Tensor("readout_values", readout_, {count_, v_dim_}, readout_values_.data());
  if (readout_ != DType::kI8) return;
  out.Tensor("readout_key_scales", DType::kF32, {count_}, readout_key_scales_.data());
  out.Tensor("readout_value_scales", DType::kF32, {count_}, readout_value_scales_.data());
}

absl::Status SlotMemory::Restore(const StateReader& in, int64_t min_rows, int64_t max_rows) {
  ASSIGN_OR_RETURN(const int64_t rows, in.Number("rows", min_rows, max_rows));
  // The number alone is not to be trusted with memory.
  RETURN_IF_ERROR(in.View("key_sums", DType::kF32, {rows, qk_dim_}).status());
  Resize(rows);
  count_ = rows;
  RETURN_IF_ERROR(in.Tensor("key_sums", DType::kF32, {rows, qk_dim_}, key_sums_.data()));
  RETURN_IF_ERROR(in.Tensor("value_sums", DType::kF32, {rows, v_dim_}, value_sums_.data()));
  RETURN_IF_ERROR(in.Tensor("radii", DType::kF32, {rows}, radii_.data()));
  RETURN_IF_ERROR(in.Tensor("readout_keys", readout_, ReadoutKeysShape(rows), readout_keys_.data()));
  RETURN_IF_ERROR(in.Tensor("readout_values", readout_, {rows, v_dim_}, readout_values_.data()));
  if (readout_ != DType::kI8) return absl::OkStatus();
  RETURN_IF_ERROR(in.Tensor("readout_key_scales", DType::kF32, {rows}, readout_key_scales_.data()));
  return in.Tensor("readout_value_scales", DType::kF32, {rows}, readout_value_scales_.data());
}

}  // namespace kvm
