#include "kvm/io/tensors/packed_layout.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/checked_parse.h"
#include "kvm/base/file/content_hash.h"
#include "kvm/base/file/file_kind.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"
#include "kvm/kernels/dtype.h"
#include "kvm/kernels/panels_view.h"
#include "kvm/model/stack/stack_spec.h"

namespace kvm {
namespace {

constexpr int kMaxRank = 64;

uint64_t ReadUint64(absl::string_view bytes) {
  uint64_t value;  // machines that map tensors are little-endian
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

// factor·product where that and all of memory stay within int64.
bool Multiply(uint64_t factor, uint64_t* product) {
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  if (factor != 0 && *product > kMax / factor) return false;
  *product *= factor;
  return true;
}

// The header's bytes, once the frame around them is sound.
absl::StatusOr<absl::string_view> FindHeader(absl::string_view file, const std::string& path) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a packed model: ", why));
  };
  const auto cut_short = [&](auto... why) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": the file is cut short: ", why...));
  };
  if (!file.empty() && file.size() < kPackedFrame &&
      file.substr(0, kPackedMagic.size()) == kPackedMagic.substr(0, file.size())) {
    return cut_short("it has ", file.size(), " bytes; expected at least ", kPackedFrame);
  }
  if (!absl::StartsWith(file, kPackedMagic)) {
    return refuse(absl::StrCat("it does not begin with KVMPACK", LooksLike(file.substr(0, kFileKindBytes))));
  }
  const uint64_t length = ReadUint64(file.substr(8));
  if (length > kMaxPackedHeader) {
    return refuse(absl::StrCat("a header of ", length, " bytes; expected at most ", kMaxPackedHeader));
  }
  if (length > file.size() - kPackedFrame) {
    return cut_short("a header of ", length, " bytes and only ", file.size() - kPackedFrame, " bytes for it");
  }
  const absl::string_view header = file.substr(kPackedFrame, length);
  ContentHash hash;
  hash.Add(header);
  if (hash.Value() != ReadUint64(file.substr(16))) {
    return refuse("the header's hash is not the one that the file states; it is damaged");
  }
  return header;
}

absl::Status CheckTensors(const PackedHeader& header, uint64_t data_size, const std::string& path) {
  std::set<std::pair<std::string, int>> seen;
  uint64_t end = 0;
  for (const PackedTensor& tensor : header.tensors()) {
    const std::string where = absl::StrCat(path, ": tensor ", Quoted(tensor.name()));
    if (!seen.emplace(tensor.name(), tensor.layout()).second) {
      return absl::InvalidArgumentError(absl::StrCat(where, " appears twice"));
    }
    ASSIGN_OR_RETURN(const PackedSize size, SizeOfPacked(tensor, path));
    if (size.dtype == DType::kI8 && header.version() == kFirstPackedVersion) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, " is I8 in a file of version ", header.version(), "; expected version ", kPackedVersion));
    }
    if (tensor.size() != size.bytes) {
      return absl::InvalidArgumentError(absl::StrCat(where, " has ", tensor.size(), " bytes; expected ", size.bytes,
                                                     " for ", tensor.dtype(), " ", ToString(size.shape)));
    }
    if (tensor.offset() != AlignPacked(end)) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, " begins at byte ", tensor.offset(), " of the data; expected ", AlignPacked(end)));
    }
    if (size.bytes > data_size || tensor.offset() > data_size - size.bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, " ends beyond the data, which has ", data_size, " bytes: the file is cut short"));
    }
    end = tensor.offset() + size.bytes;
  }
  if (end == data_size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", data_size - end, " bytes follow the last tensor; expected none"));
}

}  // namespace

absl::StatusOr<PackedSize> SizeOfPacked(const PackedTensor& tensor, const std::string& path) {
  const auto refuse = [&](auto... why) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": tensor ", Quoted(tensor.name()), why...));
  };
  PackedSize size;
  const bool panels = tensor.layout() == PackedTensor::PANELS;
  if (!ParseDType(tensor.dtype(), &size.dtype) || (!IsPackable(size.dtype) && !(size.dtype == DType::kI8 && panels))) {
    return refuse(" has dtype ", Quoted(tensor.dtype()), "; expected F32, BF16 or F16", panels ? ", or I8" : "");
  }
  if (tensor.shape_size() > kMaxRank) return refuse(": shape has more than ", kMaxRank, " extents");
  size.shape.assign(tensor.shape().begin(), tensor.shape().end());
  uint64_t bytes = 1;
  bool fits = true;
  // Extents of zero last, so that no order of extents hides one that is too large.
  for (const int64_t extent : size.shape) {
    if (extent < 0) return refuse(": shape has the extent ", extent);
    if (extent > 0) fits = fits && Multiply(static_cast<uint64_t>(extent), &bytes);
  }
  if (panels) {
    if (size.shape.size() != 2) return refuse(": panels of shape ", ToString(size.shape), "; expected a matrix");
    const PanelsView view{PanelStorage(size.dtype), size.shape[0], size.shape[1], nullptr};
    // Padding adds less than a panel, and an input takes at most kMaxInputBytes of one; the product below is that of
    // byte_size(), checked.
    constexpr int64_t kMaxInputBytes = 2 * kPanelOutputs * static_cast<int64_t>(sizeof(float));
    constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
    bytes = 1;
    fits = fits && view.outputs <= kMax - kPanelOutputs && view.inputs <= kMax / kMaxInputBytes &&
           Multiply(static_cast<uint64_t>(view.num_panels()), &bytes) &&
           Multiply(static_cast<uint64_t>(view.panel_byte_size()), &bytes);
  } else {
    fits = fits && Multiply(static_cast<uint64_t>(SizeOf(size.dtype)), &bytes);
    for (const int64_t extent : size.shape) {
      if (extent == 0) bytes = 0;
    }
  }
  if (!fits) return refuse(": shape ", ToString(size.shape), " is too large for 64-bit sizes");
  size.bytes = bytes;
  return size;
}

absl::StatusOr<PackedHeader> ParsePackedHeader(absl::string_view file, const std::string& path, uint64_t* data_begin) {
  ASSIGN_OR_RETURN(const absl::string_view bytes, FindHeader(file, path));
  PackedHeader header;
  if (!ParseChecked(bytes, &header)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": the header is no PackedHeader"));
  }
  if (header.version() < kFirstPackedVersion || header.version() > kPackedVersion) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": a packed model of version ", header.version(),
                                                   "; expected ", kFirstPackedVersion, " to ", kPackedVersion));
  }
  const absl::Status valid = ValidateStack(header.spec());
  if (!valid.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", valid.message()));
  *data_begin = AlignPacked(kPackedFrame + bytes.size());
  if (*data_begin > file.size()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": the file is cut short: it ends before the data"));
  }
  RETURN_IF_ERROR(CheckTensors(header, file.size() - *data_begin, path));
  return header;
}

}  // namespace kvm
