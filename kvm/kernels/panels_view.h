#ifndef KVM_KERNELS_PANELS_VIEW_H_
#define KVM_KERNELS_PANELS_VIEW_H_

#include <cstdint>

#include "kvm/kernels/dtype.h"

namespace kvm {

// Outputs of one panel.
inline constexpr int64_t kPanelOutputs = 16;

// A borrowed matrix W [outputs, inputs] in the order in which products read it: panels of kPanelOutputs outputs,
// [ceil(outputs/kPanelOutputs)][inputs][kPanelOutputs]. Outputs beyond the last are padding.
struct PanelsView {
  DType storage = DType::kF32;  // kF32 or kBF16
  int64_t outputs = 0;
  int64_t inputs = 0;
  const void* data = nullptr;  // aligned to an element

  int64_t num_panels() const { return (outputs + kPanelOutputs - 1) / kPanelOutputs; }
  int64_t byte_size() const { return num_panels() * inputs * kPanelOutputs * SizeOf(storage); }
};

}  // namespace kvm

#endif  // KVM_KERNELS_PANELS_VIEW_H_
