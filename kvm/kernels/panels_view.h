#ifndef KVM_KERNELS_PANELS_VIEW_H_
#define KVM_KERNELS_PANELS_VIEW_H_

#include <cstdint>

#include "kvm/kernels/dtype.h"

namespace kvm {

// Outputs of one panel.
inline constexpr int64_t kPanelOutputs = 16;

// Neighbouring inputs of one output that share a scale where weights are int8.
inline constexpr int64_t kScaleInputs = 64;

// A borrowed matrix W [outputs, inputs] in the order in which products read it: panels of kPanelOutputs outputs,
// [ceil(outputs/kPanelOutputs)][inputs][kPanelOutputs]. Outputs beyond the last are padding.
//
// A panel of int8 is cut into blocks of kScaleInputs inputs, the last with what is left. Each begins with the float32
// scales of its outputs [kPanelOutputs], then come its numbers [inputs of the block][kPanelOutputs]. A weight is
// scale·number (int8_panels.h).
struct PanelsView {
  DType storage = DType::kF32;  // kF32, kBF16 or kI8
  int64_t outputs = 0;
  int64_t inputs = 0;
  const void* data = nullptr;  // aligned to an element, with kI8 to a float

  int64_t num_panels() const { return (outputs + kPanelOutputs - 1) / kPanelOutputs; }
  int64_t panel_byte_size() const {
    const int64_t scales = storage == DType::kI8 ? (inputs + kScaleInputs - 1) / kScaleInputs * kPanelOutputs : 0;
    return inputs * kPanelOutputs * SizeOf(storage) + scales * SizeOf(DType::kF32);
  }
  int64_t byte_size() const { return num_panels() * panel_byte_size(); }
};

}  // namespace kvm

#endif  // KVM_KERNELS_PANELS_VIEW_H_
