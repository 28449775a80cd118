#include "kvm/kernels/key_panels.h"

#include "kvm/base/check.h"
#include "kvm/kernels/bfloat16.h"
#include "kvm/kernels/check_view.h"
#include "kvm/kernels/key_value.h"

namespace kvm {
namespace {

void Store(float x, float* to) { *to = x; }
void Store(float x, BFloat16* to) { *to = ToBFloat16(x); }
float Load(float x) { return x; }
float Load(BFloat16 x) { return ToFloat(x); }

// Along positions, as keys lie in panels.
template <typename Element>
void Pack(MatrixView<const float> keys, int64_t first, Element* panels) {
  for (int64_t c = 0; c < keys.cols; ++c) {
    for (int64_t r = 0; r < keys.rows; ++r) Store(keys.row(r)[c], panels + KeyPanelOffset(first + r, c, keys.cols));
  }
}

template <typename Element>
void Unpack(const Element* panels, int64_t first, MatrixView<float> keys) {
  for (int64_t r = 0; r < keys.rows; ++r) {
    for (int64_t c = 0; c < keys.cols; ++c) keys.row(r)[c] = Load(panels[KeyPanelOffset(first + r, c, keys.cols)]);
  }
}

void CheckPanels(const MatrixView<const float>& keys, int64_t first, DType dtype, const void* panels, CallSite site) {
  CheckView(keys, "keys", site);
  CheckAtLeast(first, 0, "first", site);
  Check(dtype == DType::kF32 || dtype == DType::kBF16, "panels of F32 or BF16", site);
  Check(panels != nullptr || keys.rows == 0 || keys.cols == 0, "panels in memory", site);
}

}  // namespace

void PackKeys(MatrixView<const float> keys, int64_t first, DType dtype, void* panels) {
  CheckPanels(keys, first, dtype, panels, CallSite::Here());
  if (dtype == DType::kF32) {
    Pack(keys, first, static_cast<float*>(panels));
  } else {
    Pack(keys, first, static_cast<BFloat16*>(panels));
  }
}

void UnpackKeys(const void* panels, int64_t first, DType dtype, MatrixView<float> keys) {
  CheckPanels(keys, first, dtype, panels, CallSite::Here());
  if (dtype == DType::kF32) {
    Unpack(static_cast<const float*>(panels), first, keys);
  } else {
    Unpack(static_cast<const BFloat16*>(panels), first, keys);
  }
}

}  // namespace kvm
