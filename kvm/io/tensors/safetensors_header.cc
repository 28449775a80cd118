#include "kvm/io/tensors/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"
#include "kvm/io/json/json_error.h"
#include "kvm/kernels/dtype.h"
#include "nlohmann/json.hpp"

namespace kvm {
namespace {

using Json = nlohmann::json;

// More dimensions than any library that writes these files supports.
constexpr size_t kMaxRank = 64;
constexpr uint64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

// What a tensor's object said, before it is known to be sensible.
struct RawEntry {
  std::set<std::string> keys;
  std::string dtype;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> offsets;
};

// Takes the parser's events one by one and refuses the first that has no place in a header. Nothing but what a header
// consists of is ever stored, so memory stays in proportion to the header's length whatever it says.
class HeaderHandler : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderHandler(absl::string_view text) : text_(text) {}

  const std::string& error() const { return error_; }
  std::map<std::string, RawEntry> TakeEntries() { return std::move(entries_); }
  std::map<std::string, std::string> TakeMetadata() { return std::move(metadata_); }

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::kStart:
        place_ = Place::kTop;
        return true;
      case Place::kEntry:
        place_ = name_ == kSafetensorsMetadata ? Place::kMetadata : Place::kFields;
        return true;
      default:
        return Unexpected("an object");
    }
  }

  bool key(std::string& text) override {
    switch (place_) {
      case Place::kTop:
        name_ = text;
        place_ = Place::kEntry;
        if (name_ == kSafetensorsMetadata) {
          return !std::exchange(metadata_seen_, true) || Refuse("__metadata__ appears twice");
        }
        return entries_.emplace(name_, RawEntry()).second || Refuse(absl::StrCat(Tensor(), " appears twice"));
      case Place::kMetadata:
        field_ = text;
        return metadata_.emplace(text, "").second ||
               Refuse(absl::StrCat("__metadata__ has the key ", Quoted(text), " twice"));
      default:
        return Field(text);
    }
  }

  bool string(std::string& text) override {
    if (place_ == Place::kMetadata) {
      metadata_[field_] = text;
      return true;
    }
    if (place_ != Place::kFields || field_ != "dtype") return Unexpected(absl::StrCat("the string ", Quoted(text)));
    entries_[name_].dtype = text;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::kFields || field_ == "dtype") return Unexpected("an array");
    place_ = Place::kNumbers;
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (place_ != Place::kNumbers) return Unexpected(absl::StrCat("the number ", value));
    RawEntry& entry = entries_[name_];
    std::vector<uint64_t>& numbers = field_ == "shape" ? entry.shape : entry.offsets;
    if (numbers.size() == (field_ == "shape" ? kMaxRank : 2)) {
      return Refuse(field_ == "shape" ? absl::StrCat(Tensor(), ": shape has more than ", kMaxRank, " extents")
                                      : absl::StrCat(Tensor(), ": data_offsets has more than two numbers"));
    }
    numbers.push_back(value);
    return true;
  }

  bool number_integer(int64_t value) override { return Unexpected(absl::StrCat("the number ", value)); }
  bool number_float(double, const std::string& text) override {
    return Unexpected(absl::StrCat("the number ", text.substr(0, 40)));
  }
  bool null() override {
    // The reference library takes this for no metadata.
    if (place_ != Place::kEntry || name_ != kSafetensorsMetadata) return Unexpected("null");
    place_ = Place::kTop;
    return true;
  }
  bool boolean(bool value) override { return Unexpected(value ? "true" : "false"); }
  bool binary(Json::binary_t&) override { return Unexpected("binary data"); }

  bool end_array() override {
    place_ = Place::kFields;
    return true;
  }

  bool end_object() override {
    place_ = Place::kTop;  // after the last one, too: the parser sees to it that nothing follows
    return true;
  }

  bool parse_error(std::size_t byte, const std::string& last_token, const Json::exception& exception) override {
    return Refuse(absl::StrCat("header: ", DescribeJsonError(text_, byte, last_token, exception)));
  }

 private:
  enum class Place { kStart, kTop, kEntry, kMetadata, kFields, kNumbers };

  std::string Tensor() const { return absl::StrCat("tensor ", Quoted(name_)); }

  bool Refuse(std::string error) {
    error_ = std::move(error);
    return false;
  }

  bool Field(const std::string& text) {
    field_ = text;
    if (text != "dtype" && text != "shape" && text != "data_offsets") {
      return Refuse(
          absl::StrCat(Tensor(), " has the field ", Quoted(text), "; expected dtype, shape and data_offsets"));
    }
    return entries_[name_].keys.insert(text).second ||
           Refuse(absl::StrCat(Tensor(), " has the field ", text, " twice"));
  }

  // Says what was expected in place of `found`.
  bool Unexpected(absl::string_view found) {
    switch (place_) {
      case Place::kStart:
      case Place::kTop:
        return Refuse(absl::StrCat("the header is ", found, "; expected an object"));
      case Place::kEntry:
        return Refuse(absl::StrCat(name_ == kSafetensorsMetadata ? "__metadata__" : Tensor(), " is ", found,
                                   "; expected an object"));
      case Place::kMetadata:
        return Refuse(absl::StrCat("__metadata__: ", Quoted(field_), " is ", found, "; expected a string"));
      case Place::kFields:
        return Refuse(absl::StrCat(Tensor(), ": ", field_, " is ", found, "; expected ",
                                   field_ == "dtype" ? "a string" : "an array of integers"));
      case Place::kNumbers:
        break;
    }
    return Refuse(absl::StrCat(Tensor(), ": ", field_, " contains ", found, "; expected integers from 0 to 2^64-1"));
  }

  Place place_ = Place::kStart;
  std::string name_;   // the tensor, or __metadata__
  std::string field_;  // of the tensor, or the key of the metadata
  bool metadata_seen_ = false;
  std::map<std::string, RawEntry> entries_;
  std::map<std::string, std::string> metadata_;
  absl::string_view text_;
  std::string error_;
};

// The bytes of such a tensor; false when they, or the product of the extents that are not 0, exceed an int64.
bool ByteSize(const std::vector<uint64_t>& shape, DType dtype, uint64_t* bytes) {
  uint64_t product = static_cast<uint64_t>(SizeOf(dtype));
  bool empty = false;
  for (uint64_t extent : shape) {
    empty |= extent == 0;
    if (extent == 0) continue;
    if (extent > kMaxInt64 / product) return false;
    product *= extent;
  }
  *bytes = empty ? 0 : product;
  return true;
}

absl::StatusOr<SafetensorsEntry> CheckEntry(const RawEntry& raw, uint64_t data_size, const std::string& where) {
  for (const char* field : {"dtype", "shape", "data_offsets"}) {
    if (raw.keys.count(field) == 0) return absl::InvalidArgumentError(absl::StrCat(where, " has no ", field));
  }
  SafetensorsEntry entry;
  if (!ParseDType(raw.dtype, &entry.dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, " has dtype ", Quoted(raw.dtype),
                     "; expected one of BOOL, U8, I8, I16, U16, F16, BF16, I32, U32, F32, F64, I64, U64"));
  }
  if (raw.offsets.size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": data_offsets has ", raw.offsets.size(), " numbers; expected two"));
  }
  entry.begin = raw.offsets[0];
  entry.end = raw.offsets[1];
  uint64_t bytes = 0;
  if (!ByteSize(raw.shape, entry.dtype, &bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": shape is too large for 64-bit sizes"));
  }
  entry.shape.assign(raw.shape.begin(), raw.shape.end());
  const std::string range = absl::StrCat("data_offsets [", entry.begin, ", ", entry.end, "]");
  if (entry.begin > entry.end)
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", range, " end before they begin"));
  if (entry.end > data_size) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", range, " lie beyond the file's ", data_size,
                                                   " bytes of data: the file is cut short or the header wrong"));
  }
  if (entry.end - entry.begin != bytes) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", range, " span ", entry.end - entry.begin,
                                                   " bytes; expected ", bytes, " for ", Name(entry.dtype), " ",
                                                   ToString(entry.shape)));
  }
  return entry;
}

// The tensors' bytes follow one another from the header to the end of the file.
absl::Status CheckTiling(const SafetensorsHeader& header, uint64_t data_size, const std::string& path) {
  std::vector<const std::pair<const std::string, SafetensorsEntry>*> order;
  for (const auto& entry : header.tensors) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::make_pair(a->second.begin, a->second.end) < std::make_pair(b->second.begin, b->second.end);
  });
  uint64_t position = 0;
  std::string before = "the header";
  for (const auto* entry : order) {
    const std::string name = absl::StrCat("tensor ", Quoted(entry->first));
    if (entry->second.begin != position) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", name, entry->second.begin < position ? " overlaps " : " leaves a gap after ", before,
                       ": it begins at byte ", entry->second.begin, " of the data; expected ", position));
    }
    position = entry->second.end;
    before = name;
  }
  if (position != data_size) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", data_size - position,
                                                   " bytes belong to no tensor after ", before, ": the data has ",
                                                   data_size, " bytes; expected ", position));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json, uint64_t data_size,
                                                         const std::string& path) {
  // The parser takes a zero byte for the end of its input and would not see what follows.
  const size_t zero = json.find('\0');
  if (zero != absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": header: not JSON at ", JsonPlace(json, zero + 1), ": a zero byte"));
  }
  // The parser keeps what it skips in memory, and headers may be padded with any number of spaces.
  json = absl::StripTrailingAsciiWhitespace(json);
  HeaderHandler handler(json);
  if (!Json::sax_parse(json.begin(), json.end(), &handler)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", handler.error()));
  }
  SafetensorsHeader header;
  header.metadata = handler.TakeMetadata();
  for (const auto& [name, raw] : handler.TakeEntries()) {
    ASSIGN_OR_RETURN(header.tensors[name], CheckEntry(raw, data_size, absl::StrCat(path, ": tensor ", Quoted(name))));
  }
  RETURN_IF_ERROR(CheckTiling(header, data_size, path));
  return header;
}

}  // namespace kvm
