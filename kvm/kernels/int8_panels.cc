#include "kvm/kernels/int8_panels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kvm/base/check.h"

namespace kvm {
namespace {

constexpr float kLargest = 127.0f;
constexpr int64_t kScaleBytes = kPanelOutputs * static_cast<int64_t>(sizeof(float));
constexpr int64_t kBlockBytes = kScaleBytes + kScaleInputs * kPanelOutputs;

}  // namespace

float Int8Scale(float largest) {
  Check(std::isfinite(largest) && largest >= 0, "largest to be finite and not negative");
  const float scale = largest / kLargest;
  if (scale < std::numeric_limits<float>::min()) return 0;
  // Rounded up, the scale of the largest floats would make infinity of 127.
  return std::isinf(scale * kLargest) ? std::nextafter(scale, 0.0f) : scale;
}

int8_t ToInt8(float w, float scale) {
  if (scale == 0) return 0;
  // In double the quotient is nowhere near enough to the wrong side of a half to round differently.
  const double number = std::nearbyint(static_cast<double>(w) / scale);
  Check(std::abs(number) <= kLargest, "w to be a number of at most 127 times scale");
  return static_cast<int8_t>(number);
}

void MakeInt8Panel(absl::Span<const float> rows, int64_t outputs, int64_t inputs, void* panel) {
  CheckBetween(outputs, 0, kPanelOutputs, "outputs");
  CheckAtLeast(inputs, 0, "inputs");
  CheckEq(rows.size(), outputs * inputs, "rows.size()");
  Check(panel != nullptr || inputs == 0, "panel in memory");
  auto* block = static_cast<unsigned char*>(panel);
  for (int64_t begin = 0; begin < inputs; begin += kScaleInputs) {
    const int64_t count = std::min(kScaleInputs, inputs - begin);
    auto* const scales = reinterpret_cast<float*>(block);
    auto* const numbers = reinterpret_cast<int8_t*>(block + kScaleBytes);
    std::memset(block, 0, static_cast<size_t>(kScaleBytes + count * kPanelOutputs));
    for (int64_t o = 0; o < outputs; ++o) {
      const absl::Span<const float> weights = rows.subspan(o * inputs + begin, count);
      float largest = 0;
      bool finite = true;
      for (const float w : weights) {
        finite = finite && std::isfinite(w);
        largest = std::max(largest, std::abs(w));
      }
      Check(finite, "finite weights");
      scales[o] = Int8Scale(largest);
      for (int64_t i = 0; i < count; ++i) numbers[i * kPanelOutputs + o] = ToInt8(weights[i], scales[o]);
    }
    block += kScaleBytes + count * kPanelOutputs;
  }
}

void CopyInt8Row(const PanelsView& panels, int64_t output, absl::Span<float> out) {
  Check(panels.storage == DType::kI8, "panels of I8");
  CheckBetween(output, 0, panels.outputs - 1, "output");
  CheckEq(out.size(), panels.inputs, "out.size()");
  Check(panels.data != nullptr || panels.inputs == 0, "panels to have data");
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
