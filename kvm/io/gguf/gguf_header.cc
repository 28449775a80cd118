#include "kvm/io/gguf/gguf_header.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/file/file_kind.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"

namespace kvm {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are used as they lie in the file: little-endian");

constexpr absl::string_view kMagic = "GGUF";
constexpr uint32_t kFirstVersion = 2;
constexpr uint32_t kLastVersion = 3;
constexpr uint32_t kMaxRank = 4;
constexpr uint32_t kArrayType = 9;
constexpr char kAlignmentKey[] = "general.alignment";
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 31;
// The least that a pair and a tensor of the header take: an empty name and one byte, and an empty name and no extents.
constexpr uint64_t kLeastPairBytes = 13;
constexpr uint64_t kLeastTensorBytes = 24;

// Bytes of a scalar; 0 for a string; nothing for numbers that are no type.
std::optional<size_t> ScalarBytes(uint32_t type) {
  switch (type) {
    case static_cast<uint32_t>(GgufValueType::kU8):
    case static_cast<uint32_t>(GgufValueType::kI8):
    case static_cast<uint32_t>(GgufValueType::kBool):
      return 1;
    case static_cast<uint32_t>(GgufValueType::kU16):
    case static_cast<uint32_t>(GgufValueType::kI16):
      return 2;
    case static_cast<uint32_t>(GgufValueType::kU32):
    case static_cast<uint32_t>(GgufValueType::kI32):
    case static_cast<uint32_t>(GgufValueType::kF32):
      return 4;
    case static_cast<uint32_t>(GgufValueType::kU64):
    case static_cast<uint32_t>(GgufValueType::kI64):
    case static_cast<uint32_t>(GgufValueType::kF64):
      return 8;
    case static_cast<uint32_t>(GgufValueType::kString):
      return 0;
    default:
      return std::nullopt;
  }
}

uint64_t AlignUp(uint64_t position, uint64_t alignment) { return (position + alignment - 1) / alignment * alignment; }

// Reads a file from its front.
class Parser {
 public:
  Parser(absl::Span<const uint8_t> file, const std::string& path)
      : bytes_(reinterpret_cast<const char*>(file.data()), file.size()), path_(path) {}

  absl::StatusOr<GgufHeader> Parse();

 private:
  absl::Status Fail(absl::string_view why) const { return absl::InvalidArgumentError(absl::StrCat(path_, ": ", why)); }
  // The file ends inside of `what`.
  absl::Status CutShort(absl::string_view what) const {
    return Fail(
        absl::StrCat("the file is cut short or its header wrong: its ", bytes_.size(), " bytes end inside ", what));
  }

  uint64_t left() const { return bytes_.size() - at_; }

  template <typename T>
  bool Read(T* value) {
    if (left() < sizeof(T)) return false;
    std::memcpy(value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return true;
  }
  bool ReadString(absl::string_view* text) {
    uint64_t length = 0;
    if (!Read(&length) || length > left()) return false;
    *text = bytes_.substr(at_, static_cast<size_t>(length));
    at_ += static_cast<size_t>(length);
    return true;
  }

  absl::Status ReadFrame();
  absl::Status ReadPair(uint64_t index);
  absl::Status ReadValue(absl::string_view key);
  absl::Status ReadElements(const std::string& where, uint64_t count, GgufValue* value);
  absl::Status ReadAlignment();
  absl::Status ReadTensor(uint64_t index);
  absl::Status CheckSize(const std::string& where, GgufTensorEntry* tensor, uint64_t* bytes) const;
  absl::Status PlaceTensors();

  absl::string_view bytes_;
  size_t at_ = 0;
  std::string path_;
  uint64_t num_pairs_ = 0;
  uint64_t num_tensors_ = 0;
  uint64_t alignment_ = kDefaultAlignment;
  std::vector<uint64_t> tensor_bytes_;
  GgufHeader header_;
};

absl::Status Parser::ReadFrame() {
  if (!absl::StartsWith(bytes_, kMagic)) {
    return Fail(absl::StrCat("not a GGUF file, which begins with ", Quoted(kMagic),
                             LooksLike(bytes_.substr(0, kFileKindBytes))));
  }
  at_ = kMagic.size();
  if (!Read(&header_.version)) return CutShort("the version");
  const uint32_t swapped = __builtin_bswap32(header_.version);
  if (swapped >= 1 && swapped <= 0xffff) {
    return Fail(absl::StrCat("a big-endian GGUF file (version ", swapped, "), expected a little-endian one"));
  }
  if (header_.version < kFirstVersion || header_.version > kLastVersion) {
    return Fail(absl::StrCat("GGUF version ", header_.version, ", expected ", kFirstVersion, " or ", kLastVersion));
  }
  if (!Read(&num_tensors_) || !Read(&num_pairs_)) return CutShort("the counts of tensors and keys");
  if (num_pairs_ > left() / kLeastPairBytes) {
    return Fail(absl::StrCat(num_pairs_, " keys, which do not fit the file's ", bytes_.size(),
                             " bytes: the file is cut short or its header wrong"));
  }
  if (num_tensors_ > left() / kLeastTensorBytes) {
    return Fail(absl::StrCat(num_tensors_, " tensors, which do not fit the file's ", bytes_.size(),
                             " bytes: the file is cut short or its header wrong"));
  }
  return absl::OkStatus();
}

absl::Status Parser::ReadPair(uint64_t index) {
  absl::string_view key;
  if (!ReadString(&key)) return CutShort(absl::StrCat("the name of key ", index, " of ", num_pairs_));
  if (header_.metadata.Has(key)) return Fail(absl::StrCat("key ", Quoted(key), " is there twice"));
  return ReadValue(key);
}

absl::Status Parser::ReadValue(absl::string_view key) {
  const std::string where = absl::StrCat("key ", Quoted(key));
  uint32_t type = 0;
  if (!Read(&type)) return CutShort(where);
  GgufValue value;
  uint64_t count = 1;
  if (type == kArrayType) {
    value.is_array = true;
    if (!Read(&type) || !Read(&count)) return CutShort(where);
    if (type == kArrayType) return Fail(absl::StrCat(where, " is an array of arrays, which is not read"));
  }
  if (!ScalarBytes(type).has_value()) {
    return Fail(absl::StrCat(where, " has type ", type, value.is_array ? " for its elements" : "",
                             ", expected one from 0 to 12"));
  }
  value.type = static_cast<GgufValueType>(type);
  RETURN_IF_ERROR(ReadElements(where, count, &value));
  header_.metadata.Add(key, value);
  return absl::OkStatus();
}

absl::Status Parser::ReadElements(const std::string& where, uint64_t count, GgufValue* value) {
  const size_t begin = at_;
  const size_t size = *ScalarBytes(static_cast<uint32_t>(value->type));
  if (count > left() / std::max(size, value->type == GgufValueType::kString ? sizeof(uint64_t) : 1)) {
    return CutShort(absl::StrCat(where, " (", count, count == 1 ? " element)" : " elements)"));
  }
  if (value->type == GgufValueType::kString) {
    absl::string_view text;
    for (uint64_t i = 0; i < count; ++i) {
      if (!ReadString(&text)) return CutShort(absl::StrCat(where, ", string ", i));
    }
  } else {
    at_ += static_cast<size_t>(count) * size;
  }
  value->count = static_cast<size_t>(count);
  value->bytes = bytes_.substr(begin, at_ - begin);
  if (value->type != GgufValueType::kBool) return absl::OkStatus();
  for (const char byte : value->bytes) {
    if (byte == 0 || byte == 1) continue;
    return Fail(absl::StrCat(where, ": a bool is ", static_cast<uint8_t>(byte), ", expected 0 or 1"));
  }
  return absl::OkStatus();
}

absl::Status Parser::ReadAlignment() {
  const GgufValue* const value = header_.metadata.Find(kAlignmentKey);
  if (value == nullptr) return absl::OkStatus();
  if (value->is_array || value->type != GgufValueType::kU32) {
    return header_.metadata.Wrong(kAlignmentKey, absl::StrCat("has type ", DescribeType(*value), ", expected u32"));
  }
  uint32_t alignment;
  std::memcpy(&alignment, value->bytes.data(), sizeof(alignment));
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
    return header_.metadata.Wrong(kAlignmentKey, absl::StrCat("is ", alignment, ", expected a power of two"));
  }
  static_assert(kMaxAlignment > std::numeric_limits<uint32_t>::max() / 2, "the largest power of two in 32 bits");
  alignment_ = alignment;
  return absl::OkStatus();
}

absl::Status Parser::ReadTensor(uint64_t index) {
  GgufTensorEntry tensor;
  if (!ReadString(&tensor.name)) return CutShort(absl::StrCat("the name of tensor ", index, " of ", num_tensors_));
  const std::string where = absl::StrCat("tensor ", Quoted(tensor.name));
  uint32_t rank = 0;
  if (!Read(&rank)) return CutShort(where);
  if (rank > kMaxRank) return Fail(absl::StrCat(where, " has ", rank, " extents, expected at most ", kMaxRank));
  for (uint32_t i = 0; i < rank; ++i) {
    uint64_t extent = 0;
    if (!Read(&extent)) return CutShort(where);
    if (extent > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Fail(absl::StrCat(where, " has an extent of ", extent, ", which is too large for 64-bit sizes"));
    }
    tensor.shape.push_back(static_cast<int64_t>(extent));
  }
  // The format lists the extent whose elements are neighbours first.
  std::reverse(tensor.shape.begin(), tensor.shape.end());
  uint32_t type = 0;
  if (!Read(&type) || !Read(&tensor.offset)) return CutShort(where);
  const std::optional<BlockType> known = BlockTypeOf(type);
  if (!known.has_value()) {
    const absl::string_view name = NameOfUnreadType(type);
    return Fail(absl::StrCat(where, " has type ", name.empty() ? absl::StrCat(type) : std::string(name),
                             ", expected one of ", ReadableTypes()));
  }
  tensor.type = *known;
  uint64_t bytes = 0;
  RETURN_IF_ERROR(CheckSize(where, &tensor, &bytes));
  header_.tensors.push_back(std::move(tensor));
  tensor_bytes_.push_back(bytes);
  return absl::OkStatus();
}

absl::Status Parser::CheckSize(const std::string& where, GgufTensorEntry* tensor, uint64_t* bytes) const {
  const BlockSize block = SizeOf(tensor->type);
  const int64_t row = tensor->shape.empty() ? 1 : tensor->shape.back();
  if (row % block.elements != 0) {
    return Fail(absl::StrCat(where, " has rows of ", row, " elements, expected a multiple of ", block.elements,
                             ", the block of ", Name(tensor->type)));
  }
  // Room for eight bytes an element, extents of 0 left aside.
  int64_t elements = 1, room = 0;
  bool fits = true, empty = false;
  for (const int64_t extent : tensor->shape) {
    empty |= extent == 0;
    fits = fits && !__builtin_mul_overflow(elements, std::max<int64_t>(extent, 1), &elements);
  }
  if (!fits || __builtin_mul_overflow(elements, 8, &room)) {
    return Fail(absl::StrCat(where, ": shape ", ToString(tensor->shape), " is too large for 64-bit sizes"));
  }
  *bytes = empty ? 0 : static_cast<uint64_t>(elements / block.elements * block.bytes);
  return absl::OkStatus();
}

// The tensors' bytes follow one another, each from the next multiple of the alignment on, up to the end of the file.
absl::Status Parser::PlaceTensors() {
  const uint64_t data_begin = AlignUp(at_, alignment_);
  const uint64_t data_size = bytes_.size() - std::min<uint64_t>(data_begin, bytes_.size());
  std::vector<size_t> order(header_.tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::make_pair(header_.tensors[a].offset, tensor_bytes_[a]) <
           std::make_pair(header_.tensors[b].offset, tensor_bytes_[b]);
  });
  absl::string_view before;  // the last tensor that has bytes
  uint64_t end = 0;
  for (const size_t i : order) {
    GgufTensorEntry& tensor = header_.tensors[i];
    const std::string where = absl::StrCat("tensor ", Quoted(tensor.name));
    const uint64_t expected = AlignUp(end, alignment_);
    if (tensor.offset != expected) {
      return Fail(absl::StrCat(where, tensor.offset < expected ? " overlaps " : " leaves a gap after ",
                               before.data() == nullptr ? "the header" : absl::StrCat("tensor ", Quoted(before)),
                               ": it begins at byte ", tensor.offset, " of the data, expected ", expected,
                               " (alignment ", alignment_, ")"));
    }
    tensor.bytes = {reinterpret_cast<const uint8_t*>(bytes_.data()), 0};
    if (tensor_bytes_[i] == 0) continue;
    if (tensor.offset > data_size || tensor_bytes_[i] > data_size - tensor.offset) {
      return Fail(absl::StrCat(where, ": ", tensor_bytes_[i], " bytes for ", Name(tensor.type), " ",
                               ToString(tensor.shape), " at byte ", tensor.offset, " lie beyond the file's ", data_size,
                               " bytes of data: the file is cut short or its header wrong"));
    }
    tensor.bytes = {reinterpret_cast<const uint8_t*>(bytes_.data()) + data_begin + tensor.offset,
                    static_cast<size_t>(tensor_bytes_[i])};
    before = tensor.name;
    end = tensor.offset + tensor_bytes_[i];
  }
  if (data_size > AlignUp(end, alignment_)) {
    return Fail(absl::StrCat(data_size - AlignUp(end, alignment_), " bytes at the end of the file belong to no tensor",
                             ": the data has ", data_size, " bytes, expected ", end, " (alignment ", alignment_, ")"));
  }
  return absl::OkStatus();
}

absl::StatusOr<GgufHeader> Parser::Parse() {
  header_.metadata = GgufMetadata(path_);
  RETURN_IF_ERROR(ReadFrame());
  for (uint64_t i = 0; i < num_pairs_; ++i) RETURN_IF_ERROR(ReadPair(i));
  RETURN_IF_ERROR(ReadAlignment());
  for (uint64_t i = 0; i < num_tensors_; ++i) RETURN_IF_ERROR(ReadTensor(i));
  RETURN_IF_ERROR(PlaceTensors());
  return std::move(header_);
}

}  // namespace

absl::StatusOr<GgufHeader> ParseGgufHeader(absl::Span<const uint8_t> file, const std::string& path) {
  return Parser(file, path).Parse();
}

}  // namespace kvm
