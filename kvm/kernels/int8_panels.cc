#include "kvm/kernels/int8_panels.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

namespace kvm {
namespace {

constexpr float kLargest = 127.0f;
constexpr int64_t kScaleBytes = kPanelOutputs * static_cast<int64_t>(sizeof(float));
constexpr int64_t kBlockBytes = kScaleBytes + kScaleInputs * kPanelOutputs;

}  // namespace

float Int8Scale(float largest) {
  assert(std::isfinite(largest));
  const float scale = largest / kLargest;
  if (scale < std::numeric_limits<float>::min()) return 0;
  // Rounded up, the scale of the largest floats would make infinity of 127.
  return std::isinf(scale * kLargest) ? std::nextafter(scale, 0.0f) : scale;
}

int8_t ToInt8(float w, float scale) {
  if (scale == 0) return 0;
  // In double the quotient is nowhere near enough to the wrong side of a half to round differently.
  return static_cast<int8_t>(std::nearbyint(static_cast<double>(w) / scale));
}

void MakeInt8Panel(absl::Span<const float> rows, int64_t outputs, int64_t inputs, void* panel) {
  assert(outputs <= kPanelOutputs && static_cast<int64_t>(rows.size()) == outputs * inputs);
  auto* block = static_cast<unsigned char*>(panel);
  for (int64_t begin = 0; begin < inputs; begin += kScaleInputs) {
    const int64_t count = std::min(kScaleInputs, inputs - begin);
    auto* const scales = reinterpret_cast<float*>(block);
    auto* const numbers = reinterpret_cast<int8_t*>(block + kScaleBytes);
    std::memset(block, 0, static_cast<size_t>(kScaleBytes + count * kPanelOutputs));
    for (int64_t o = 0; o < outputs; ++o) {
      const absl::Span<const float> weights = rows.subspan(o * inputs + begin, count);
      float largest = 0;
      for (const float w : weights) largest = std::max(largest, std::abs(w));
      scales[o] = Int8Scale(largest);
      for (int64_t i = 0; i < count; ++i) numbers[i * kPanelOutputs + o] = ToInt8(weights[i], scales[o]);
    }
    block += kScaleBytes + count * kPanelOutputs;
  }
}

void CopyInt8Row(const PanelsView& panels, int64_t output, absl::Span<float> out) {
  assert(panels.storage == DType::kI8 && static_cast<int64_t>(out.size()) == panels.inputs);
  const auto* const panel =
      static_cast<const unsigned char*>(panels.data) + output / kPanelOutputs * panels.panel_byte_size();
  const int64_t lane = output % kPanelOutputs;
  for (int64_t i = 0; i < panels.inputs; ++i) {
    const unsigned char* const block = panel + i / kScaleInputs * kBlockBytes;
    const auto* const numbers = reinterpret_cast<const int8_t*>(block + kScaleBytes);
    out[i] = reinterpret_cast<const float*>(block)[lane] * numbers[i % kScaleInputs * kPanelOutputs + lane];
  }
}

}  // namespace kvm
