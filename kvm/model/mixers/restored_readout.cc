#include "kvm/model/mixers/restored_readout.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvm/kernels/bfloat16.h"
#include "kvm/kernels/dtype.h"
#include "kvm/kernels/key_value.h"

namespace kvm {
namespace {

// Where a key or value of one row lies: elements offset, offset + stride, …; integers have a scale.
struct Place {
  void* elements;
  int64_t offset;
  int64_t stride;
  int64_t count;
  float* scale;  // null: 1

  void* At(int64_t i, DType dtype) const {
    return static_cast<char*>(elements) + (offset + i * stride) * SizeOf(dtype);
  }
};

float Read(const Place& place, int64_t i, DType dtype) {
  const void* const element = place.At(i, dtype);
  if (dtype == DType::kI8) return *place.scale * static_cast<float>(*static_cast<const int8_t*>(element));
  if (dtype == DType::kBF16) return ToFloat(*static_cast<const BFloat16*>(element));
  return *static_cast<const float*>(element);
}

// What roundings may differ by, as a share of the largest element.
float Tolerance(DType dtype) {
  if (dtype == DType::kI8) return 1.01f / 127;
  return dtype == DType::kBF16 ? 1.0f / 128 : 1e-4f;
}

// Makes `stored` what `derived` is unless they differ by roundings alone. Returns whether that was needed.
absl::StatusOr<bool> Correct(const Place& derived, DType dtype, const Place& stored) {
  float largest = 0;
  for (int64_t i = 0; i < derived.count; ++i) {
    const float x = Read(derived, i, dtype);
    if (!std::isfinite(x)) return absl::InvalidArgumentError("its sums are too large to be read");
    largest = std::max(largest, std::abs(x));
  }
  const float most = Tolerance(dtype) * largest;
  bool belongs = true;
  for (int64_t i = 0; i < derived.count && belongs; ++i) {
    belongs = std::abs(Read(derived, i, dtype) - Read(stored, i, dtype)) <= most;  // false for NaN
  }
  if (belongs) return false;
  for (int64_t i = 0; i < derived.count; ++i) {
    std::memcpy(stored.At(i, dtype), derived.At(i, dtype), static_cast<size_t>(SizeOf(dtype)));
  }
  if (stored.scale != nullptr) *stored.scale = *derived.scale;
  return true;
}

Place KeyOf(const SlotRows& rows, int64_t row) {
  return {rows.readout_keys, KeyPanelOffset(row, 0, rows.qk_dim), kKeyPanel, rows.qk_dim,
          rows.readout_dtype == DType::kI8 ? rows.readout_key_scales + row : nullptr};
}

Place ValueOf(const SlotRows& rows, int64_t row) {
  return {rows.readout_values, row * rows.v_dim, 1, rows.v_dim,
          rows.readout_dtype == DType::kI8 ? rows.readout_value_scales + row : nullptr};
}

// The radius is a length, or the number of tokens.
absl::Status CheckRadius(ValueReadout readout, float radius) {
  const float least = readout == ValueReadout::kRadius ? 0 : 1;
  if (radius >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("its radius is ", radius, "; expected at least ", least));
}

}  // namespace

absl::StatusOr<int64_t> CorrectReadout(const ReadoutRule& rule, SlotRows& rows) {
  const DType dtype = rows.readout_dtype;
  const size_t of_element = static_cast<size_t>(SizeOf(dtype));
  // One panel at a time.
  std::vector<char> keys(static_cast<size_t>(kKeyPanel * rows.qk_dim) * of_element);
  std::vector<char> values(static_cast<size_t>(kKeyPanel * rows.v_dim) * of_element);
  std::vector<float> key_scales(kKeyPanel), value_scales(kKeyPanel);
  int64_t replaced = 0;
  for (int64_t first = 0; first < rows.count; first += kKeyPanel) {
    SlotRows panel = rows;
    panel.count = panel.capacity = std::min(kKeyPanel, rows.count - first);
    panel.key_sums = rows.key_sums + first * rows.qk_dim;
    panel.value_sums = rows.value_sums + first * rows.v_dim;
    panel.radii = rows.radii + first;
    panel.readout_keys = keys.data();
    panel.readout_values = values.data();
    panel.readout_key_scales = key_scales.data();
    panel.readout_value_scales = value_scales.data();
    RefreshReadout(rule.norm(), rule.value, panel);
    for (int64_t i = 0; i < panel.count; ++i) {
      const auto name_row = [&](const absl::Status& status) {
        return absl::Status(status.code(), absl::StrCat("row ", first + i, ": ", status.message()));
      };
      const absl::Status radius = CheckRadius(rule.value, panel.radii[i]);
      if (!radius.ok()) return name_row(radius);
      const absl::StatusOr<bool> key = Correct(KeyOf(panel, i), dtype, KeyOf(rows, first + i));
      if (!key.ok()) return name_row(key.status());
      const absl::StatusOr<bool> value = Correct(ValueOf(panel, i), dtype, ValueOf(rows, first + i));
      if (!value.ok()) return name_row(value.status());
      replaced += *key + *value;
    }
  }
  return replaced;
}

}  // namespace kvm
