#include "kvm/state/finite_tensors.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kvm/kernels/dtype.h"

namespace kvm {
namespace {

// Elements that are looked at without asking whether one was found.
constexpr int64_t kBlock = 2048;

// The first element whose exponent is all ones: NaN or infinity; −1: none.
template <typename Bits>
int64_t FirstNotFinite(const void* data, int64_t count, Bits exponent) {
  const char* const bytes = static_cast<const char*>(data);
  Bits block[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t size = std::min(kBlock, count - begin);
    std::memcpy(block, bytes + begin * static_cast<int64_t>(sizeof(Bits)), static_cast<size_t>(size) * sizeof(Bits));
    unsigned found = 0;
    for (int64_t i = 0; i < size; ++i) found |= static_cast<unsigned>((block[i] & exponent) == exponent);
    if (found == 0) continue;
    for (int64_t i = 0; i < size; ++i) {
      if ((block[i] & exponent) == exponent) return begin + i;
    }
  }
  return -1;
}

int64_t FirstNotFinite(const TensorView& view) {
  switch (view.dtype) {
    case DType::kF32:
      return FirstNotFinite<uint32_t>(view.data, view.num_elements(), 0x7f800000u);
    case DType::kBF16:
      return FirstNotFinite<uint16_t>(view.data, view.num_elements(), 0x7f80u);
    case DType::kF16:
      return FirstNotFinite<uint16_t>(view.data, view.num_elements(), 0x7c00u);
    case DType::kF64:
      return FirstNotFinite<uint64_t>(view.data, view.num_elements(), 0x7ff0000000000000u);
    default:
      return -1;
  }
}

// "layer 3: " for "layer.3.mixer.…".
std::string LayerOf(absl::string_view name) {
  constexpr absl::string_view kLayer = "layer.";
  if (!absl::StartsWith(name, kLayer)) return "";
  name.remove_prefix(kLayer.size());
  return absl::StrCat("layer ", name.substr(0, name.find('.')), ": ");
}

}  // namespace

absl::Status CheckFinite(const StateTensor& tensor) {
  const int64_t element = FirstNotFinite(tensor.view);
  if (element < 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(LayerOf(tensor.name), "state tensor ", tensor.name, ": element ",
                                                 element, " of ", tensor.view.num_elements(),
                                                 " is NaN or infinite; expected finite numbers"));
}

}  // namespace kvm
