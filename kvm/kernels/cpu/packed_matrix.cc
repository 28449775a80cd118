#include <algorithm>
#include <cstdint>
#include <vector>

#include "kvm/base/check.h"
#include "kvm/kernels/bfloat16.h"
#include "kvm/kernels/cpu/matmul.h"
#include "kvm/kernels/int8_panels.h"

namespace kvm {
namespace {

void CheckStorage(DType storage, CallSite site) {
  Check(storage == DType::kF32 || storage == DType::kBF16 || storage == DType::kI8, "storage to be F32, BF16 or I8",
        site);
}

}  // namespace

PackedMatrix PackedMatrix::Pack(const TensorView& weight, DType storage) {
  CheckEq(weight.shape.size(), 2, "dimensions of weight");
  CheckAtLeast(weight.shape[0], 0, "outputs");
  CheckAtLeast(weight.shape[1], 0, "inputs");
  Check(weight.data != nullptr || weight.num_elements() == 0, "weight to have data");
  CheckStorage(storage, CallSite::Here());
  const int64_t outputs = weight.shape[0], inputs = weight.shape[1];
  PackedMatrix packed;
  packed.view_ = {storage, outputs, inputs, nullptr};
  packed.owned_ = Tensor(DType::kU8, {packed.byte_size()});
  packed.view_.data = packed.owned_.bytes();
  for (int64_t p = 0; p < packed.view_.num_panels(); ++p) {
    const int64_t rows = std::min(kPanel, outputs - p * kPanel);
    const auto* data = static_cast<const unsigned char*>(weight.data);
    const std::vector<float> values =
        ReadFloats({weight.dtype, {rows, inputs}, data + p * kPanel * inputs * SizeOf(weight.dtype)});
    void* const panel = static_cast<unsigned char*>(packed.owned_.bytes()) + p * packed.view_.panel_byte_size();
    if (storage == DType::kI8) {
      MakeInt8Panel(values, rows, inputs, panel);
      continue;
    }
    for (int64_t i = 0; i < inputs; ++i) {
      for (int64_t r = 0; r < rows; ++r) {
        const float value = values[r * inputs + i];
        if (storage == DType::kBF16) {
          static_cast<BFloat16*>(panel)[i * kPanel + r] = ToBFloat16(value);
        } else {
          static_cast<float*>(panel)[i * kPanel + r] = value;
        }
      }
    }
  }
  return packed;
}

PackedMatrix PackedMatrix::Borrow(const PanelsView& panels) {
  CheckStorage(panels.storage, CallSite::Here());
  CheckAtLeast(panels.outputs, 0, "panels.outputs");
  CheckAtLeast(panels.inputs, 0, "panels.inputs");
  Check(panels.data != nullptr || panels.byte_size() == 0, "panels to have data");
  const int64_t alignment = SizeOf(panels.storage == DType::kI8 ? DType::kF32 : panels.storage);
  CheckEq(static_cast<int64_t>(reinterpret_cast<uintptr_t>(panels.data)) % alignment, 0,
          "panels.data modulo its alignment");
  PackedMatrix packed;
  packed.view_ = panels;
  return packed;
}

const void* PackedMatrix::panel(int64_t p) const {
  CheckBetween(p, 0, view_.num_panels() - 1, "p");
  return static_cast<const unsigned char*>(view_.data) + p * view_.panel_byte_size();
}

}  // namespace kvm
