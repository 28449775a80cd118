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

// Words that are looked at without asking whether one was found.
constexpr int64_t kBlock = 512;

// The exponents of the floats in a word of eight bytes: where they are, and the lowest bit of each. A float is NaN or
// infinite when its exponent is all ones, and then adding that bit makes the sign bit of what was only the exponent.
struct Exponents {
  uint64_t mask = 0;
  uint64_t lowest = 0;

  uint64_t signs() const { return ~mask & (mask << 1); }
};

Exponents ExponentsOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {0x7f8000007f800000u, 0x0080000000800000u};
    case DType::kBF16:
      return {0x7f807f807f807f80u, 0x0080008000800080u};
    case DType::kF16:
      return {0x7c007c007c007c00u, 0x0400040004000400u};
    case DType::kF64:
      return {0x7ff0000000000000u, 0x0010000000000000u};
    default:
      return {};
  }
}

// The first word with such a float; −1: none. Bytes beyond the last whole word count as a word that zeros fill up.
int64_t FirstWord(const char* bytes, int64_t size, const Exponents& exponents) {
  constexpr int64_t kWord = sizeof(uint64_t);
  const auto found_in = [&](const char* at, int64_t count) {
    uint64_t word = 0;
    std::memcpy(&word, at, static_cast<size_t>(count));
    return ((word & exponents.mask) + exponents.lowest) & exponents.signs();
  };
  for (int64_t begin = 0; begin < size; begin += kBlock * kWord) {
    const int64_t end = std::min(begin + kBlock * kWord, size);
    uint64_t found = 0;
    int64_t at = begin;
    for (; at + kWord <= end; at += kWord) found |= found_in(bytes + at, kWord);
    if (at < end) found |= found_in(bytes + at, end - at);
    if (found == 0) continue;
    for (at = begin; found_in(bytes + at, std::min(kWord, end - at)) == 0;) at += kWord;
    return at / kWord;
  }
  return -1;
}

// The first element that is NaN or infinite; −1: none.
int64_t FirstNotFinite(const TensorView& view) {
  const Exponents exponents = ExponentsOf(view.dtype);
  if (exponents.mask == 0) return -1;
  const char* const bytes = static_cast<const char*>(view.data);
  const int64_t word = FirstWord(bytes, view.byte_size(), exponents);
  if (word < 0) return -1;
  const int64_t size = SizeOf(view.dtype), per_word = static_cast<int64_t>(sizeof(uint64_t)) / size;
  for (int64_t element = word * per_word;; ++element) {
    if (FirstWord(bytes + element * size, size, exponents) == 0) return element;
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

bool AllFinite(const TensorView& view) {
  const Exponents exponents = ExponentsOf(view.dtype);
  return exponents.mask == 0 || FirstWord(static_cast<const char*>(view.data), view.byte_size(), exponents) < 0;
}

absl::Status CheckFinite(const StateTensor& tensor) {
  const int64_t element = FirstNotFinite(tensor.view);
  if (element < 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(LayerOf(tensor.name), "state tensor ", tensor.name, ": element ",
                                                 element, " of ", tensor.view.num_elements(),
                                                 " is NaN or infinite; expected finite numbers"));
}

}  // namespace kvm
