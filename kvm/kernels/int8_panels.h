#ifndef KVM_KERNELS_INT8_PANELS_H_
#define KVM_KERNELS_INT8_PANELS_H_

// Weights as int8 with a float32 scale for every kScaleInputs of them: ŵ = scale·q, q from −127 to 127, scale = the
// block's largest |w| / 127. What that costs: |w − ŵ| ≤ max|w| / 254 within a block, up to float32's own rounding.
// Blocks whose scale is no normal float32 (max|w| < 127·2⁻¹²⁶) become zero, which costs no more than that. A scale in
// bfloat16 would be 2 bytes less in 68, and its rounding would spend part of the numbers' range.

#include <cstdint>

#include "absl/types/span.h"
#include "kvm/kernels/panels_view.h"

namespace kvm {

// The scale of a block whose largest |w| is `largest`, which is finite.
float Int8Scale(float largest);

// w/scale to the nearest integer, ties to even; 0 for a scale of 0. |w| is at most the block's largest.
int8_t ToInt8(float w, float scale);

// Writes a panel of int8 (PanelsView). rows: [outputs, inputs], all finite, with at most kPanelOutputs outputs; the
// outputs that a panel lacks become zero. panel: panel_byte_size() bytes, aligned to a float.
void MakeInt8Panel(absl::Span<const float> rows, int64_t outputs, int64_t inputs, void* panel);

// The weights ŵ of one output in panels of int8, each product rounded to float32. out: [inputs].
void CopyInt8Row(const PanelsView& panels, int64_t output, absl::Span<float> out);

}  // namespace kvm

#endif  // KVM_KERNELS_INT8_PANELS_H_
