#include "kvm/io/gguf/gguf_metadata.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvm/base/file/utf8.h"
#include "kvm/base/status_macros.h"

namespace kvm {
namespace {

constexpr size_t kElementsShown = 8;

template <typename T>
T Element(const GgufValue& value, size_t i) {
  T element;
  std::memcpy(&element, value.bytes.data() + i * sizeof(T), sizeof(T));
  return element;
}

bool IsInteger(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
    case GgufValueType::kI8:
    case GgufValueType::kU16:
    case GgufValueType::kI16:
    case GgufValueType::kU32:
    case GgufValueType::kI32:
    case GgufValueType::kU64:
    case GgufValueType::kI64:
      return true;
    default:
      return false;
  }
}

bool IsFraction(GgufValueType type) { return type == GgufValueType::kF32 || type == GgufValueType::kF64; }

// Element i of whole numbers; nothing when int64 cannot hold it.
std::optional<int64_t> IntElement(const GgufValue& value, size_t i) {
  switch (value.type) {
    case GgufValueType::kU8:
      return Element<uint8_t>(value, i);
    case GgufValueType::kI8:
      return Element<int8_t>(value, i);
    case GgufValueType::kU16:
      return Element<uint16_t>(value, i);
    case GgufValueType::kI16:
      return Element<int16_t>(value, i);
    case GgufValueType::kU32:
      return Element<uint32_t>(value, i);
    case GgufValueType::kI32:
      return Element<int32_t>(value, i);
    case GgufValueType::kI64:
      return Element<int64_t>(value, i);
    default:
      break;
  }
  const uint64_t number = Element<uint64_t>(value, i);
  if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return static_cast<int64_t>(number);
}

double FractionElement(const GgufValue& value, size_t i) {
  return value.type == GgufValueType::kF32 ? double{Element<float>(value, i)} : Element<double>(value, i);
}

// Of anything but strings.
std::string FormatElement(const GgufValue& value, size_t i) {
  if (value.type == GgufValueType::kBool) return Element<uint8_t>(value, i) != 0 ? "true" : "false";
  if (value.type == GgufValueType::kF32) return absl::StrCat(Element<float>(value, i));
  if (value.type == GgufValueType::kF64) return absl::StrCat(Element<double>(value, i));
  if (value.type == GgufValueType::kU64) return absl::StrCat(Element<uint64_t>(value, i));
  return absl::StrCat(*IntElement(value, i));
}

GgufStrings StringsOf(const GgufValue& value) { return {value.bytes, value.count}; }

absl::string_view TypeName(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
      return "u8";
    case GgufValueType::kI8:
      return "i8";
    case GgufValueType::kU16:
      return "u16";
    case GgufValueType::kI16:
      return "i16";
    case GgufValueType::kU32:
      return "u32";
    case GgufValueType::kI32:
      return "i32";
    case GgufValueType::kF32:
      return "f32";
    case GgufValueType::kBool:
      return "bool";
    case GgufValueType::kString:
      return "string";
    case GgufValueType::kU64:
      return "u64";
    case GgufValueType::kI64:
      return "i64";
    case GgufValueType::kF64:
      return "f64";
  }
  return "";
}

std::string Range(int64_t low, int64_t high) {
  if (high == std::numeric_limits<int64_t>::max()) return absl::StrCat("at least ", low);
  return absl::StrCat("from ", low, " to ", high);
}

bool IsOneInt(const GgufValue& value) { return !value.is_array && IsInteger(value.type); }
bool IsOneNumber(const GgufValue& value) {
  return !value.is_array && (IsFraction(value.type) || IsInteger(value.type));
}
bool IsOneBool(const GgufValue& value) { return !value.is_array && value.type == GgufValueType::kBool; }
bool IsOneString(const GgufValue& value) { return !value.is_array && value.type == GgufValueType::kString; }
bool AreStrings(const GgufValue& value) { return value.is_array && value.type == GgufValueType::kString; }
bool AreInts(const GgufValue& value) { return value.is_array && IsInteger(value.type); }
bool AreFractions(const GgufValue& value) { return value.is_array && IsFraction(value.type); }
bool AreBools(const GgufValue& value) { return value.is_array && value.type == GgufValueType::kBool; }

}  // namespace

std::string DescribeType(const GgufValue& value) {
  if (!value.is_array) return std::string(TypeName(value.type));
  return absl::StrCat("array of ", value.count, " ", TypeName(value.type));
}

std::string FormatGgufValue(const GgufValue& value) {
  if (value.type == GgufValueType::kString && !value.is_array) return std::string(*StringsOf(value).begin());
  if (!value.is_array) return FormatElement(value, 0);
  std::vector<std::string> shown;
  const size_t most = std::min(value.count, kElementsShown);
  if (value.type == GgufValueType::kString) {
    for (absl::string_view text : StringsOf(value)) {
      if (shown.size() == most) break;
      shown.push_back(Quoted(text));
    }
  } else {
    for (size_t i = 0; i < most; ++i) shown.push_back(FormatElement(value, i));
  }
  return absl::StrCat("[", absl::StrJoin(shown, ", "),
                      value.count > most ? absl::StrCat(", ... ", value.count, " in all") : "", "]");
}

const GgufValue* GgufMetadata::Find(absl::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

absl::Status GgufMetadata::Wrong(absl::string_view key, absl::string_view why) const {
  return absl::InvalidArgumentError(absl::StrCat(source_, ": key ", Quoted(key), ": ", why));
}

absl::StatusOr<GgufValue> GgufMetadata::Get(absl::string_view key, bool fits(const GgufValue&),
                                            absl::string_view expected) const {
  const GgufValue* const value = Find(key);
  if (value == nullptr) return Wrong(key, absl::StrCat("missing, expected ", expected));
  if (!fits(*value)) return Wrong(key, absl::StrCat("has type ", DescribeType(*value), ", expected ", expected));
  return *value;
}

absl::StatusOr<int64_t> GgufMetadata::Int(absl::string_view key, int64_t low, int64_t high) const {
  const std::string expected = absl::StrCat("a whole number ", Range(low, high));
  ASSIGN_OR_RETURN(const GgufValue value, Get(key, IsOneInt, expected));
  const std::optional<int64_t> number = IntElement(value, 0);
  if (number.has_value() && *number >= low && *number <= high) return *number;
  return Wrong(key, absl::StrCat("is ", FormatElement(value, 0), ", expected ", expected));
}

absl::StatusOr<int64_t> GgufMetadata::IntOr(absl::string_view key, int64_t low, int64_t high, int64_t otherwise) const {
  if (!Has(key)) return otherwise;
  return Int(key, low, high);
}

absl::StatusOr<double> GgufMetadata::Number(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue value, Get(key, IsOneNumber, "a number"));
  if (IsFraction(value.type)) return FractionElement(value, 0);
  if (value.type == GgufValueType::kU64) return static_cast<double>(Element<uint64_t>(value, 0));
  return static_cast<double>(*IntElement(value, 0));
}

absl::StatusOr<double> GgufMetadata::NumberOr(absl::string_view key, double otherwise) const {
  if (!Has(key)) return otherwise;
  return Number(key);
}

absl::StatusOr<bool> GgufMetadata::Bool(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue value, Get(key, IsOneBool, "a bool"));
  return Element<uint8_t>(value, 0) != 0;
}

absl::StatusOr<bool> GgufMetadata::BoolOr(absl::string_view key, bool otherwise) const {
  if (!Has(key)) return otherwise;
  return Bool(key);
}

absl::StatusOr<absl::string_view> GgufMetadata::String(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue value, Get(key, IsOneString, "a string"));
  return *StringsOf(value).begin();
}

absl::StatusOr<absl::string_view> GgufMetadata::StringOr(absl::string_view key, absl::string_view otherwise) const {
  if (!Has(key)) return otherwise;
  return String(key);
}

absl::StatusOr<GgufStrings> GgufMetadata::Strings(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue value, Get(key, AreStrings, "an array of strings"));
  return StringsOf(value);
}

absl::StatusOr<std::vector<int64_t>> GgufMetadata::Ints(absl::string_view key, int64_t low, int64_t high) const {
  const std::string expected = absl::StrCat("whole numbers ", Range(low, high));
  ASSIGN_OR_RETURN(const GgufValue value, Get(key, AreInts, absl::StrCat("an array of ", expected)));
  std::vector<int64_t> numbers;
  numbers.reserve(value.count);
  for (size_t i = 0; i < value.count; ++i) {
    const std::optional<int64_t> number = IntElement(value, i);
    if (!number.has_value() || *number < low || *number > high) {
      return Wrong(key, absl::StrCat("element ", i, " is ", FormatElement(value, i), ", expected ", expected));
    }
    numbers.push_back(*number);
  }
  return numbers;
}

absl::StatusOr<std::vector<float>> GgufMetadata::Numbers(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue value, Get(key, AreFractions, "an array of f32 or f64"));
  std::vector<float> numbers(value.count);
  for (size_t i = 0; i < value.count; ++i) numbers[i] = static_cast<float>(FractionElement(value, i));
  return numbers;
}

absl::StatusOr<std::vector<bool>> GgufMetadata::Bools(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue value, Get(key, AreBools, "an array of bool"));
  std::vector<bool> bools(value.count);
  for (size_t i = 0; i < value.count; ++i) bools[i] = Element<uint8_t>(value, i) != 0;
  return bools;
}

}  // namespace kvm
